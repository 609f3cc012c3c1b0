"""The messages between a driver and its workers: plain data that crosses processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from orchestrator.accounts import Account
from orchestrator.ledger.sweeps.records import Channel, channel_of, sweep_id_of
from trainables.errors import Refusal
from trainables.trial import ScriptSettings, Settings, settings_from

LARGEST_STEP = 1 << 53
"""Maximum step of a report."""

SIZE = "size/"
"""Prefix of the metrics of a `trainables.cost.Cost`, in a trial's first report."""

NORM = "hidden_norm/"
"""Prefix of the metrics of `Engine.hidden_norms`."""

INITIAL_NORM = "initial_hidden_norm/"
"""Prefix of the same at step 0, in a trial's first report."""


OUT_OF_GPU_MEMORY = "out of GPU memory"
"""Cause of a failure on a GPU whose memory is full; that of the machine's memory is `out of memory`."""


def shown_as(metric: str) -> str:
    """Return the key of a metric in the results that Ray Tune and stopping rules read.

    The prefix prevents collisions of a script's metrics with keys of Ray Tune and of the service.
    """
    return f"metric/{metric}"


@dataclass(frozen=True)
class Assignment:
    """One attempt of one trial, with everything that a worker needs.

    Attributes:
        attempt_id: Id `<trial key>.<n>`, which is also the id of the Ray Tune trial.
        trial_key: Key `<sweep>-<number>`.
        ledger: Random id of the sweep's ledger.
        settings: Settings of the trial.
        cpu: Processors of the attempt on each of its nodes.
        gpu: GPUs of the attempt on each of its nodes, or its share of one.
        data: Folder of the data sets.
        checkpoints: Folder of the trial's checkpoints.
        resume: Checkpoint to resume, as the ledger records it, or None to start at step 0.
        log: File to which the attempt appends its log.
        compilations: Folder of JAX's persistent compilation cache.
        store: URL of the trial's checkpoints in the shared store, or None.
        engine: Name of the shared engine, or None if the attempt has its own.
        alone: Whether the shared engine must train nothing else until the attempt's first report, because an
            engine of the trial has died and the trial is tested.
        observed: Metrics that every report must contain: objectives and constrained metrics.
        copied: Whether other trials may copy its checkpoints, as in population based training, so that every
            report of a script except for the last must have one.
        avoided: Ids of the nodes on which the attempt must not start, because they are reserved for other
            sweeps.
        tracking: Variables that give a script access to the trial's run in MLflow, or none.
        account: Account as which a script runs; None for that of the worker.
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
        """Return the id of the trial's sweep."""
        return sweep_id_of(self.trial_key)

    @property
    def channel(self) -> Channel:
        """Return the name under which the driver publishes stop requests and engines."""
        return channel_of(self.sweep_id, self.ledger)

    @property
    def slots(self) -> int:
        """Return the number of trials that share a device in the slots of one engine; 1 without an engine.

        A function or a command with a part of a GPU has a process of its own there.
        """
        is_script = isinstance(self.settings, ScriptSettings)
        return round(1 / self.gpu) if 0 < self.gpu < 1 and not is_script else 1

    @property
    def nodes(self) -> int:
        """Return the number of nodes of the attempt."""
        return self.settings.nodes if isinstance(self.settings, ScriptSettings) else 1

    def check_metrics(self, metrics: Mapping[str, float]) -> None:
        """Check that a report contains the observed metrics.

        Raises:
            Refusal: A metric is missing.
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
        """Return the assignment in a Ray Tune configuration."""
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
        path: Folder of the checkpoint.
        step: Step of the trial in the checkpoint.
        digest: SHA-256 of its manifest.
        size: Total size of its files in bytes.
    """

    path: str
    step: int
    digest: str
    size: int


@dataclass(frozen=True)
class Logged:
    """What a script has logged with MLflow besides metrics since the previous outcome.

    Attributes:
        parameters: Parameters by name.
        tags: Tags by name.
        files: Path of each artifact, by its name in the run.
        left_out: Names of the artifacts that exceed a limit.
    """

    parameters: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """A worker's report of an interval, or of its failure to train one.

    Attributes:
        attempt_id: Id of the attempt; its driver accepts the outcome for no other attempt.
        step: Number of optimiser updates so far.
        done: Whether this is the last outcome of the attempt.
        metrics: Metrics `val/...`, `train/...`, `hidden_norm/...`, `learning_rate`, `tokens_per_second`,
            `seconds/...`, and in a trial's first report `size/...` and `initial_hidden_norm/...`.
        checkpoint: Checkpoint at `step`, or None if nothing was saved since the last outcome.
        interrupted: Whether the attempt ended because of a stop request, perhaps before it began.
        failure: Cause of a failed attempt (`non-finite`, `bad data`, `out of memory`, `out of GPU memory`,
            `time limit`, `disk limit`, `error`), or None.
        message: Message about the failure, in one line.
        engine: Name of the shared engine that answered, or None.
        node: Name of the attempt's machine.
        queued: Whether this is only a heartbeat of an attempt that waits for a slot of its engine, or for the
            engine's device if `engine` is None.
        training: Whether this is only a heartbeat of an attempt that trains towards its next report.
        held: Seconds since the attempt got its slot of a shared engine; None without a slot.
        alone: Whether, beside `queued`, the engine trains nothing else until the attempt's next report.
        complete: Whether a function or a command, and with it the trial, has ended before its last step.
        loan: Id of the loan of the process that answers, or '' if the process is Tune's.
        logged: What the script has logged with MLflow besides metrics, or None.
    """

    attempt_id: str
    step: int
    done: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
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
    logged: Logged | None = None

    def to_result(self) -> dict[str, Any]:
        """Return the flat result dictionary that Ray Tune and its schedulers read."""
        shown = {shown_as(name): value for name, value in self.metrics.items()}
        flat = {"step": self.step, "done": self.done, "queued": self.queued, "training": self.training}
        return {**shown, **flat, "outcome": asdict(self)}

    @staticmethod
    def from_result(result: dict[str, Any]) -> Outcome:
        """Return the outcome in a result dictionary."""
        fields = dict(result["outcome"])
        saved, logged = fields.pop("checkpoint"), fields.pop("logged")
        return Outcome(
            **fields,
            checkpoint=SavedCheckpoint(**saved) if saved else None,
            logged=Logged(**logged) if logged else None,
        )
