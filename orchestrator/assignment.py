"""What a driver tells a worker, and what a worker tells back: plain data that crosses processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.ledger.keys import sweep_id_of
from trainables.trial import TrialSettings


@dataclass(frozen=True)
class Assignment:
    """One attempt of one trial, complete: a worker needs nothing else.

    Attributes:
        attempt_id: `<trial key>.<n>`; also the id of the Ray Tune trial.
        trial_key: `<sweep>-<number>`.
        number: the trial's number in its sweep.
        settings: what is trained.
        cpu: processors of the attempt.
        gpu: share of a GPU of the attempt.
        data: folder of the data sets.
        checkpoints: folder of this trial's checkpoints.
        resume: checkpoint folder to go on from, or None to start at step 0.
        resume_digest: SHA-256 of that checkpoint's manifest, as the ledger has it.
        stop_wish: file whose presence means: save and leave.
        log: file to which the attempt appends what it does.
        compilations: folder of JAX's persistent compilation cache.
        store: URL of this trial's checkpoints where every node reaches them, or None if the folder is enough.
    """

    attempt_id: str
    trial_key: str
    number: int
    settings: TrialSettings
    cpu: float
    gpu: float
    data: str
    checkpoints: str
    resume: str | None
    resume_digest: str | None
    stop_wish: str
    log: str
    compilations: str
    store: str | None = None

    @property
    def sweep_id(self) -> str:
        """Return the sweep that the trial belongs to."""
        return sweep_id_of(self.trial_key)

    @property
    def slots(self) -> int:
        """Return how many trials share a device, each in a slot of its one engine; 1 without a share."""
        return round(1 / self.gpu) if 0 < self.gpu < 1 else 1

    def to_config(self) -> dict[str, Any]:
        """Return the Ray Tune configuration that carries this assignment."""
        return {"assignment": asdict(self)}

    @staticmethod
    def from_config(config: dict[str, Any]) -> Assignment:
        """Return the assignment carried by a Ray Tune configuration."""
        fields = dict(config["assignment"])
        settings = TrialSettings.from_document(fields.pop("settings"))
        return Assignment(**fields, settings=settings)


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that is durable on disk.

    Attributes:
        path: its folder.
        step: the trial's step it holds.
        digest: SHA-256 of its manifest.
        size: bytes of all its files.
    """

    path: str
    step: int
    digest: str
    size: int


@dataclass(frozen=True)
class Outcome:
    """What a worker reports after an interval, or instead of one.

    Attributes:
        step: optimiser updates done so far.
        done: whether nothing more comes from this attempt.
        metrics: `val/...`, `train/...`, `hidden_norm/layer_k`, `learning_rate`, `tokens_per_second`,
            `seconds/...`.
        checkpoint: the checkpoint at `step`, or None when nothing could be saved.
        interrupted: whether the attempt left because it was asked to.
        failure: cause of a failed attempt (`non-finite`, `bad data`, `out of memory`, `error`), or None.
        message: one line about the failure.
        engine: name of the engine that held the trial, where several share one.
        node: name of the machine that the trial runs on.
        waiting: whether this is only a sign of life: the engine has no slot for the trial yet.
    """

    step: int
    done: bool
    metrics: dict[str, float]
    checkpoint: SavedCheckpoint | None = None
    interrupted: bool = False
    failure: str | None = None
    message: str | None = None
    engine: str | None = None
    node: str | None = None
    waiting: bool = False

    def to_result(self) -> dict[str, Any]:
        """Return the flat result dictionary that Ray Tune and its schedulers read."""
        told = {"step": self.step, "done": self.done, "waiting": self.waiting}
        return {**told, **self.metrics, "outcome": asdict(self)}

    @staticmethod
    def from_result(result: dict[str, Any]) -> Outcome:
        """Return the outcome carried by a result dictionary."""
        fields = dict(result["outcome"])
        saved = fields.pop("checkpoint")
        return Outcome(**fields, checkpoint=SavedCheckpoint(**saved) if saved else None)
