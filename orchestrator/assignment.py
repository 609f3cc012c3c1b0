"""The messages between a driver and its workers: plain data that crosses processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from orchestrator.accounts import Account
from orchestrator.ledger.sweeps.records import Channel, channel_of, sweep_id_of
from trainables.errors import Refusal
from trainables.trial import Settings, settings_from

LARGEST_STEP = 1 << 53
"""Of a report; the ledger holds no much larger one."""

SIZE = "size/"
"""Prefix of the metrics that hold the numbers of a `trainables.cost.Cost`, in a trial's first report."""


def shown_as(metric: str) -> str:
    """Return the key of a metric in the results that Ray Tune and stopping rules read.

    No metric of a script, whatever it is called, is thus taken for a key of Ray Tune's or of the service.
    """
    return f"metric/{metric}"


@dataclass(frozen=True)
class Assignment:
    """One attempt of one trial, complete: a worker needs nothing else.

    Attributes:
        attempt_id: `<trial key>.<n>`; also the id of the Ray Tune trial.
        trial_key: `<sweep>-<number>`.
        ledger: random id of the ledger of the sweep.
        settings: of the trial.
        cpu: processors of the attempt.
        gpu: share of a GPU of the attempt.
        data: folder of the data sets.
        checkpoints: folder of this trial's checkpoints.
        resume: checkpoint to go on from, as the ledger records it, or None to start at step 0.
        log: file to which the attempt appends its events.
        compilations: folder of JAX's persistent compilation cache.
        store: URL of this trial's checkpoints in the shared store, or None without one.
        engine: name of the engine that the attempt shares, or None if it has its own.
        alone: whether the shared engine must train nothing else until the attempt's first report: the trial
            was in an engine that died, and is tested for it.
        observed: metrics that every report must hold: the objectives and what is constrained.
        copied: whether other trials may go on from its checkpoints, as in population based training: every
            report of a script but the last must hand one over.
        avoided: ids of the nodes on which the attempt must not start: they are held for other sweeps.
        tracking: variables that name the trial's run in MLflow to a script; empty if it has none to write to.
        account: as which a script runs; None for that of the worker.
    """

    attempt_id: str
    trial_key: str
    ledger: str
    settings: Settings
    cpu: float
    gpu: float
    data: str
    checkpoints: str
    resume: SavedCheckpoint | None
    log: str
    compilations: str
    store: str | None = None
    engine: str | None = None
    alone: bool = False
    observed: tuple[str, ...] = ()
    copied: bool = False
    avoided: tuple[str, ...] = ()
    tracking: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None

    @property
    def sweep_id(self) -> str:
        """Return the id of the sweep that the trial belongs to."""
        return sweep_id_of(self.trial_key)

    @property
    def channel(self) -> Channel:
        """Return the name under which the driver publishes stop requests and engines."""
        return channel_of(self.sweep_id, self.ledger)

    @property
    def slots(self) -> int:
        """Return how many trials share a device, each in a slot of its engine; 1 if the trial has its own."""
        return round(1 / self.gpu) if 0 < self.gpu < 1 else 1

    def check_metrics(self, metrics: Mapping[str, float]) -> None:
        """Check that a report holds what decides about trials.

        Raises:
            Refusal: a metric is missing.
        """
        for name in self.observed:
            if name not in metrics:
                must = f"must include {name}, which the search-space file names"
                own_first = sorted(metrics, key=lambda one: (one.startswith("seconds/"), one))
                got = ", ".join(own_first[:8]) or "no metrics"
                raise Refusal("a report", must, got, "Report it, or name another objective.")

    def to_config(self) -> dict[str, Any]:
        """Return the Ray Tune configuration that carries this assignment."""
        return {"assignment": asdict(self)}

    @staticmethod
    def from_config(config: dict[str, Any]) -> Assignment:
        """Return the assignment carried by a Ray Tune configuration."""
        fields = dict(config["assignment"])
        settings = settings_from(fields.pop("settings"))
        resume, observed = fields.pop("resume"), tuple(fields.pop("observed"))
        avoided, account = tuple(fields.pop("avoided")), fields.pop("account")
        return Assignment(
            **fields,
            observed=observed,
            avoided=avoided,
            account=Account(**{**account, "groups": tuple(account["groups"])}) if account else None,
            settings=settings,
            resume=SavedCheckpoint(**resume) if resume else None,
        )


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that is durable on disk.

    Attributes:
        path: its folder.
        step: the trial's step that it holds.
        digest: SHA-256 of its manifest.
        size: bytes of all its files.
    """

    path: str
    step: int
    digest: str
    size: int


@dataclass(frozen=True)
class Outcome:
    """A worker's report of an interval, or of its failure to train one.

    Attributes:
        attempt_id: of the attempt that it is about; its driver accepts it for no other one.
        step: optimiser updates done so far.
        done: True in the last outcome of an attempt.
        metrics: `val/...`, `train/...`, `hidden_norm/layer_k`, `learning_rate`, `tokens_per_second`,
            `seconds/...`, and in a trial's first report `size/...`.
        checkpoint: the checkpoint at `step`, or None when nothing was saved since the last outcome.
        interrupted: True if the attempt ended because a stop was requested, perhaps before it began.
        failure: cause of a failed attempt (`non-finite`, `bad data`, `out of memory`, `time limit`,
            `disk limit`, `error`), or None.
        message: one line about the failure.
        engine: name of the shared engine that answered, if any.
        node: name of the machine that the attempt runs on.
        queued: True if the attempt waits for a slot of its engine, or for the engine's device if `engine` is
            None: a sign of life, not a report.
        training: True if the attempt trains on towards its next report: a sign of life, not a report.
        held: seconds for which the attempt has had a slot of its shared engine; None before it has one, and
            without a shared engine.
        alone: True, beside `queued`, if the engine trains nothing else until the attempt's next report.
        complete: True if a function or a command has ended before its last step, and so its trial.
        loan: id of the loan by which the driver has the process that answers, or '' if the process is Tune's.
    """

    attempt_id: str
    step: int
    done: bool
    metrics: dict[str, float]
    checkpoint: SavedCheckpoint | None = None
    interrupted: bool = False
    failure: str | None = None
    message: str | None = None
    engine: str | None = None
    node: str | None = None
    queued: bool = False
    training: bool = False
    held: float | None = None
    alone: bool = False
    complete: bool = False
    loan: str = ""

    def to_result(self) -> dict[str, Any]:
        """Return the flat result dictionary that Ray Tune and its schedulers read."""
        shown = {shown_as(name): value for name, value in self.metrics.items()}
        flat = {"step": self.step, "done": self.done, "queued": self.queued, "training": self.training}
        return {**shown, **flat, "outcome": asdict(self)}

    @staticmethod
    def from_result(result: dict[str, Any]) -> Outcome:
        """Return the outcome carried by a result dictionary."""
        fields = dict(result["outcome"])
        saved = fields.pop("checkpoint")
        return Outcome(**fields, checkpoint=SavedCheckpoint(**saved) if saved else None)
