"""Records of sweeps and trials, one frozen dataclass for each table, with their states and keys.

Times are seconds since the epoch (UTC) as floats; `at_ms` is in milliseconds. A mapping holds plain JSON
values. Every key is built and parsed here:

    <sweep>-<number>      a trial of the search
    <sweep>-c<number>     a confirmation
    <trial>.<number>      an attempt of a trial, and the Ray Tune trial that runs it
    <sweep>@<ledger>      the channel of a sweep: the name under which its driver publishes on a Ray
"""

from __future__ import annotations

import base64
import sys
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, NewType, Protocol, TypeVar

SweepState = Literal["RUNNING", "WAITING", "PAUSED", "INTERRUPTED", "COMPLETE", "FAILED"]
TrialState = Literal["WAITING", "RUNNING", "PREEMPTED", "COMPLETE", "PRUNED", "DIVERGED", "FAILED"]
AttemptState = Literal["RUNNING", "ENDED", "LOST", "FAILED"]
Role = Literal["search", "confirmation"]
CheckpointKind = Literal["best", "last", "pinned"]
UserDecision = Literal["stop", "exempt"]
"""Decision of a user about a trial: it is stopped, or exempted from early stopping. Its system attributes
hold the decision with the user and the time."""

SubmissionState = Literal["QUEUED", "STARTED", "PARKED", "ENDED"]

FINISHED_SWEEP: frozenset[str] = frozenset({"COMPLETE", "FAILED"})
DRIVEN_SWEEP: frozenset[str] = frozenset({"RUNNING", "WAITING", "PAUSED"})
DESCRIPTION = "mlflow.note.content"
"""Tag of MLflow with the description of a run, in Markdown."""

FINISHED_TRIAL: frozenset[TrialState] = frozenset({"COMPLETE", "PRUNED", "DIVERGED", "FAILED"})
CANDIDATE: frozenset[TrialState] = frozenset({"COMPLETE", "DIVERGED"})
"""States of the trials that can be the best one, if they have a value. A trial is DIVERGED after an objective
that is not finite: that is an outcome of its hyperparameters, whereas a FAILED trial has crashed."""
UNFINISHED_TRIAL: frozenset[TrialState] = frozenset({"WAITING", "RUNNING", "PREEMPTED"})

STATES: Mapping[str, frozenset[str]] = {
    "SweepRecord": FINISHED_SWEEP | DRIVEN_SWEEP | {"INTERRUPTED"},
    "TrialRecord": FINISHED_TRIAL | UNFINISHED_TRIAL,
    "AttemptRecord": frozenset({"RUNNING", "ENDED", "LOST", "FAILED"}),
}
"""Legal states of each kind of record."""


STEP_WORK = "step_work"
"""Fact of a sweep: the `trainables.cost.Cost` of each static choice, with its `trials`."""

HARDWARE = "hardware"
"""Fact of a sweep: the hardware of its trials, one phrase for each change between two runs."""

SIMILARITY = "similarity"
"""Name of the fact with the similarity of each earlier sweep and known source, as its driver last knew it."""

REPEATS = "repeats"
"""Name of the system attribute with the source of the setting that a trial repeats, if it is known."""

RESOURCES = "resources"
"""Fact of a sweep: `cpu`, `gpu` and `device` of one attempt, and since which time (`at`) they hold.

They may change between two runs, and a measured number of slots may differ on another machine.
"""


@dataclass(frozen=True)
class SweepRecord:
    """One run of a search-space file.

    Attributes:
        document: Resolved specification.
        digest: Digest of the specification; the same file gives the same sweep.
        data_source: Origin of the examples in one phrase.
        facts: Git commit, versions, seeds, hardware.
    """

    id: str
    name: str
    profile: str | None
    task: str
    document: Mapping[str, Any]
    digest: str
    state: SweepState
    reason: str | None
    data_source: str
    data_digest: str
    facts: Mapping[str, Any]
    created_at: float
    finished_at: float | None = None

    def held_by(self, attempt: AnyAttempt) -> tuple[float, float]:
        """Return the cores and the GPUs that an attempt holds, on all its nodes."""
        held = self._resources_of(attempt)
        return float(held["cpu"]), float(held["gpu"])

    def device_of(self, attempt: AnyAttempt) -> str:
        """Return the model of the GPUs that an attempt holds; `GPU` if it is unknown, `CPU` without a GPU."""
        held = self._resources_of(attempt)
        return str(held.get("device") or ("GPU" if held["gpu"] else "CPU"))

    def _resources_of(self, attempt: AnyAttempt) -> Mapping[str, Any]:
        now = self.document["resources"]
        known = self.facts.get(RESOURCES) or [{"cpu": now["cpu"], "gpu": now.get("gpu", 0.0), "at": 0.0}]
        since = [entry for entry in known if entry["at"] <= attempt.started_at] or known[:1]
        found: Mapping[str, Any] = since[-1]
        return found


@dataclass(frozen=True)
class Extension:
    """The continuation of a finished trial beyond its last step; stored in the trial's system attributes.

    Attributes:
        step: Last step before the extension.
        value: Best validation metric before the extension, by which the trial was chosen; None in a
            confirmation, which repeats the steps of a chosen trial.
        best_step: Step of `value`.
    """

    step: int
    value: float | None = None
    best_step: int | None = None


EXTENSIONS = "extensions"
"""Key of a trial's extensions in its system attributes."""


@dataclass(frozen=True)
class TrialRecord:
    """One hyperparameter assignment.

    Attributes:
        key: `<sweep>-<number>`, or `<sweep>-c<number>` for a confirmation; the same in every store.
        system_attrs: Data of the sampler, for rebuilding the study.
        cause: Reason of the end or of the last failure, such as `diverged at step 400: val/loss is nan`.
        value: Value of the objective, finite; None until the trial has ended, and without one.
        best_step: Step of the checkpoint that belongs to `value`.
        step: Last reported step.
        attempts: Number of starts so far, which is also the number of the current attempt.
        reported_at: Time of the newest report, or None.
    """

    key: str
    sweep_id: str
    number: int
    role: Role
    state: TrialState
    cause: str | None
    params: Mapping[str, Any]
    system_attrs: Mapping[str, Any]
    seed: int
    value: float | None
    best_step: int | None
    step: int
    total_steps: int
    attempts: int
    created_at: float
    finished_at: float | None = None
    reported_at: float | None = None

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """Return the extensions of the trial, the oldest first."""
        return tuple(Extension(**each) for each in self.system_attrs.get(EXTENSIONS, ()))

    @property
    def repeats(self) -> str | None:
        """Return the source of the setting that the trial repeats, or None.

        It is the id of an earlier sweep, the name of known results, or the paper of the published values.
        """
        repeated: str | None = self.system_attrs.get(REPEATS)
        return repeated

    def decided_by(self, decision: UserDecision) -> str | None:
        """Return the name of the user who has decided so about the trial, or None."""
        taken = self.system_attrs.get(decision)
        return None if taken is None else str(taken["by"])

    def schedule_steps(self, step: int) -> int:
        """Return the length of the training schedule that holds after a step.

        A schedule holds up to its last step. An extension has one of its own from there on.
        """
        return next((each.step for each in self.extensions if each.step > step), self.total_steps)

    def as_searched(self) -> TrialRecord:
        """Return the trial as it was when the search had ended, before its first extension."""
        if not self.extensions:
            return self
        first = self.extensions[0]
        return replace(
            self,
            state="COMPLETE",
            cause=None,
            value=first.value,
            best_step=first.best_step,
            step=first.step,
            total_steps=first.step,
        )


class TrialOutline(NamedTuple):
    """What the standing of a sweep takes from a trial: some fields of its `TrialRecord`.

    Most of the time of reading a trial goes into its hyperparameters, the data of the sampler and the digest.
    """

    key: str
    number: int
    role: Role
    state: TrialState
    cause: str | None
    value: float | None
    best_step: int | None
    step: int
    total_steps: int
    finished_at: float | None
    reported_at: float | None


@dataclass(frozen=True)
class AttemptRecord:
    """One start of a trial.

    Attributes:
        id: `<trial key>.<number>`.
        number: Number within the trial, counted from 1.
        node: Name of the machine; None until the first report.
        taken_at: Time at which a worker took it and began to hold resources, or None.
        outage_seconds: Seconds since then for which its worker had to wait because the database did not
            answer; None without an outage.
    """

    id: str
    trial_key: str
    number: int
    state: AttemptState
    cause: str | None
    node: str | None
    started_at: float
    ended_at: float | None = None
    taken_at: float | None = None
    outage_seconds: float | None = None


class AttemptOutline(NamedTuple):
    """What the cost of a sweep takes from an attempt: some fields of its `AttemptRecord`."""

    trial_key: str
    state: AttemptState
    started_at: float
    ended_at: float | None
    taken_at: float | None
    outage_seconds: float | None


class SweepOutline(NamedTuple):
    """Outlines of the trials of a sweep, as `Ledger.trials` orders them, and of their attempts.

    Attributes:
        trials: The trials.
        attempts: Their attempts, in any order.
        backlog: Number of records that MLflow lacks, if it has been read.
    """

    trials: Sequence[TrialOutline]
    attempts: Sequence[AttemptOutline]
    backlog: int | None = None


AnyTrial = TrialRecord | TrialOutline
AnyAttempt = AttemptRecord | AttemptOutline


@dataclass(frozen=True)
class ReportRecord:
    """The metrics of a trial at a step, from the first attempt that reached it."""

    trial_key: str
    step: int
    attempt_id: str
    metrics: Mapping[str, float]
    at: float


class CurvePoint(NamedTuple):
    """Chosen metrics of a trial at a step, cheaper than a `ReportRecord`.

    Attributes:
        metrics: The chosen metrics that the report has.
        at: Time of the report.
    """

    trial_key: str
    step: int
    metrics: Mapping[str, float]
    at: float


@dataclass(frozen=True)
class CheckpointRecord:
    """A verified checkpoint folder on disk. Kind `pinned` is never superseded.

    The row of a checkpoint leaves its metrics out if the report of its step has them, and the ledger returns
    the checkpoint with those of the report.
    """

    trial_key: str
    step: int
    kind: CheckpointKind
    path: str
    digest: str
    bytes: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Segment:
    """A part of a trial that starts from another trial's state; stored in the trial's system attributes.

    Attributes:
        step: Step of the donor's checkpoint, at which the segment starts.
        donor: Key of the donor, the trial of that state.
        params: Hyperparameters of the trial from this step on.
    """

    step: int
    donor: str
    params: Mapping[str, Any]


@dataclass(frozen=True)
class EvaluationRecord:
    """One evaluation of a chosen checkpoint on a held-out split.

    Attributes:
        scores: Scores of all examples in the order of the split, from `pack_scores`; None without any.
    """

    trial_key: str
    step: int
    split: str
    metrics: Mapping[str, float]
    at: float
    scores: str | None = None


@dataclass(frozen=True)
class MlflowRunRecord:
    """The one MLflow run that gets the events of a sweep or of a trial.

    Attributes:
        run: Sweep ID or trial key.
        run_id: MLflow's ID of the run.
        number: Number of the token under which the run was recorded.
        position: Time of the trial's newest report that MLflow has, 0 if it has none. For the run of a sweep,
            the number of the newest batch that MLflow has.
    """

    sweep_id: str
    run: str
    run_id: str
    number: int
    position: float = 0.0


@dataclass(frozen=True)
class Event:
    """A message for the tracker, to be applied exactly once; `run` is a sweep ID or a trial key."""

    kind: str
    run: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    at_ms: int = 0


@dataclass(frozen=True)
class OutboxRow:
    """An undelivered event; `seq` rises in the order of the events."""

    seq: int
    event: Event


@dataclass(frozen=True)
class Pending:
    """What MLflow lacks of a sweep, or a first part of it.

    Attributes:
        events: Events of the outbox, in order. They are sent before the reports, whose runs they start.
        reports: Reports of trials after the positions of their runs, by trial and time.
    """

    events: Sequence[OutboxRow]
    reports: Sequence[ReportRecord]

    def positions(self) -> dict[str, float]:
        """Return the position of each run once the reports have been delivered, by trial key."""
        return {report.trial_key: report.at for report in self.reports}


class _OfTrial(Protocol):
    @property
    def trial_key(self) -> str: ...


OfTrial = TypeVar("OfTrial", bound=_OfTrial)


def by_trial(records: Iterable[OfTrial]) -> dict[str, list[OfTrial]]:
    """Group records by the key of their trial, in the order of `records`."""
    grouped: dict[str, list[OfTrial]] = defaultdict(list)
    for record in records:
        grouped[record.trial_key].append(record)
    return dict(grouped)


Channel = NewType("Channel", str)
"""Name of a sweep among the sweeps of all ledgers, made by `channel_of`."""


def trial_key(sweep_id: str, number: int, role: Role = "search") -> str:
    """Return the key of a sweep's trial in a role."""
    mark = "c" if role == "confirmation" else ""
    return f"{sweep_id}-{mark}{number}"


def attempt_id_of(trial: str, number: int) -> str:
    """Return the ID of a trial's attempt, counted from 1."""
    return f"{trial}.{number}"


def trial_label(trial: str) -> str:
    """Return the name of a trial within its sweep: its number, prefixed with `c` for a confirmation."""
    return trial.rpartition("-")[2]


def channel_of(sweep_id: str, ledger_id: str) -> Channel:
    """Return the channel of a sweep, whose ID is the same in every ledger that shares a Ray."""
    return Channel(f"{sweep_id}@{ledger_id}")


def sweep_id_of(trial: str) -> str:
    """Return the ID of the sweep of a trial's key."""
    return trial.rpartition("-")[0]


def trial_key_of(attempt: str) -> str:
    """Return the key of the trial of an attempt's ID."""
    return attempt.rpartition(".")[0]


def attempt_number(attempt: str) -> int:
    """Return the number of an attempt within its trial."""
    return int(attempt.rpartition(".")[2])


def is_confirmation(trial: str) -> bool:
    """Return True if a trial's key names a confirmation."""
    return trial_label(trial).startswith("c")


def pack_scores(scores: Iterable[float]) -> str:
    """Return scores of examples as a text: 32-bit floats, compressed, in base 64."""
    floats = array("f", scores)
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(zlib.compress(floats.tobytes(), 9)).decode()


def unpack_scores(text: str) -> list[float]:
    """Return the scores in a text of `pack_scores`."""
    floats = array("f", zlib.decompress(base64.b64decode(text)))
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tolist()
