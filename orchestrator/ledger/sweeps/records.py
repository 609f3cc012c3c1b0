"""The records of the ledger, one frozen dataclass a table, and the states that a record may have.

Times are seconds since the epoch (UTC) as floats; `at_ms` is in milliseconds. A mapping holds plain JSON
values.
"""

from __future__ import annotations

import base64
import sys
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NewType, Protocol, TypeVar

SweepState = Literal["RUNNING", "WAITING", "PAUSED", "INTERRUPTED", "COMPLETE", "FAILED"]
TrialState = Literal["WAITING", "RUNNING", "PREEMPTED", "COMPLETE", "PRUNED", "FAILED"]
AttemptState = Literal["RUNNING", "ENDED", "LOST", "FAILED"]
Role = Literal["search", "confirmation"]
CheckpointKind = Literal["best", "last", "pinned"]

FINISHED_SWEEP: frozenset[str] = frozenset({"COMPLETE", "FAILED"})
DRIVEN_SWEEP: frozenset[str] = frozenset({"RUNNING", "WAITING", "PAUSED"})
FINISHED_TRIAL: frozenset[TrialState] = frozenset({"COMPLETE", "PRUNED", "FAILED"})
UNFINISHED_TRIAL: frozenset[TrialState] = frozenset({"WAITING", "RUNNING", "PREEMPTED"})

STATES: Mapping[str, frozenset[str]] = {
    "SweepRecord": FINISHED_SWEEP | DRIVEN_SWEEP | {"INTERRUPTED"},
    "TrialRecord": FINISHED_TRIAL | UNFINISHED_TRIAL,
    "AttemptRecord": frozenset({"RUNNING", "ENDED", "LOST", "FAILED"}),
}
"""The legal states of each kind of record."""


STEP_WORK = "step_work"
"""The fact of a sweep that lists the `trainables.cost.Cost` of static choices, each with its `trials`."""

HARDWARE = "hardware"
"""The fact of a sweep that lists what its trials have run on, one phrase for each change between two runs."""

RESOURCES = "resources"
"""The fact of a sweep that lists the `cpu` and `gpu` of one attempt, and `at` which time they began to hold.

They may change between two runs, and a number of slots that is measured may differ on another machine.
"""


@dataclass(frozen=True)
class SweepRecord:
    """One run of a search-space file.

    Attributes:
        document: the resolved specification, plain JSON.
        digest: of the specification; the same file gives the same sweep.
        data_source: one phrase that names the origin of the examples.
        facts: git commit, versions, seeds, hardware.
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

    def held_by(self, attempt: AttemptRecord) -> tuple[float, float]:
        """Return the cores and the share of a GPU that an attempt holds.

        Earlier versions did not record them: their attempts count with the first that are known.
        """
        now = self.document["resources"]
        known = self.facts.get(RESOURCES) or [{"cpu": now["cpu"], "gpu": now.get("gpu", 0.0), "at": 0.0}]
        since = [entry for entry in known if entry["at"] <= attempt.started_at] or known[:1]
        return float(since[-1]["cpu"]), float(since[-1]["gpu"])


@dataclass(frozen=True)
class TrialRecord:
    """One hyperparameter assignment.

    Attributes:
        key: `<sweep>-<number>`, or `<sweep>-c<number>` for a confirmation; the same in every store.
        system_attrs: what the sampler needs when the study is rebuilt.
        value: the best validation metric, finite; None until the trial is COMPLETE or PRUNED.
        best_step: the step of `value`.
        step: the last reported step.
        attempts: number of starts so far, which is also the number of the current attempt.
        reported_at: time of its newest report; None before the first one, and if an earlier version wrote it.
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


@dataclass(frozen=True)
class AttemptRecord:
    """One start of a trial.

    Attributes:
        id: `<trial key>.<number>`.
        number: counted from 1 within the trial.
        node: name of the machine; None until the first report.
        taken_at: when a worker took it and began to hold resources; None if none has.
        outage_seconds: time since then in which the database of the ledger did not answer its driver, so that
            its worker could only wait; None if there was none.
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

    @property
    def held_from(self) -> float | None:
        """Return when a worker began to hold resources for the attempt, or None if none did.

        An earlier version did not record the time; an attempt with a node was taken after it was started.
        """
        return self.started_at if self.taken_at is None and self.node is not None else self.taken_at


@dataclass(frozen=True)
class ReportRecord:
    """The metrics of a trial at a step. A step has one report: that of the first attempt that reached it."""

    trial_key: str
    step: int
    attempt_id: str
    metrics: Mapping[str, float]
    at: float


class CurvePoint(NamedTuple):
    """Some of the metrics of a trial at a step. It costs less than a `ReportRecord`: a sweep has many.

    Attributes:
        metrics: the chosen ones that the report has.
        at: time of the report.
    """

    trial_key: str
    step: int
    metrics: Mapping[str, float]
    at: float


@dataclass(frozen=True)
class CheckpointRecord:
    """A verified checkpoint folder on disk; one of kind `pinned` is never superseded."""

    trial_key: str
    step: int
    kind: CheckpointKind
    path: str
    digest: str
    bytes: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Segment:
    """A part of a trial that starts from another trial's state; kept in the trial's system attributes.

    Attributes:
        step: step of the donor's checkpoint, at which the segment starts.
        donor: key of the trial that the state comes from.
        params: the trial's hyperparameters from this step on.
    """

    step: int
    donor: str
    params: Mapping[str, Any]


@dataclass(frozen=True)
class EvaluationRecord:
    """One evaluation of a chosen checkpoint on a held-out split.

    Attributes:
        scores: of every example in the order of the split, packed by `pack_scores`; None
            in the rows of earlier versions.
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
        run: sweep id or trial key.
        run_id: MLflow's id.
        number: of the token under which the run was recorded.
    """

    sweep_id: str
    run: str
    run_id: str
    number: int


POINTS = "metrics"
"""The kind of an event that repeats the metrics of a report or an evaluation, and can be made from it."""


@dataclass(frozen=True)
class Event:
    """A message for the tracker, to be applied exactly once; `run` is a sweep id or a trial key."""

    kind: str
    run: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    at_ms: int = 0


@dataclass(frozen=True)
class OutboxRow:
    """An event that is not delivered yet; `seq` rises in the order in which the events happened."""

    seq: int
    event: Event


class _OfTrial(Protocol):
    @property
    def trial_key(self) -> str: ...


OfTrial = TypeVar("OfTrial", bound=_OfTrial)


def by_trial(records: Iterable[OfTrial]) -> dict[str, list[OfTrial]]:
    """Group records by the key of their trial; a group keeps the order of `records`."""
    grouped: dict[str, list[OfTrial]] = defaultdict(list)
    for record in records:
        grouped[record.trial_key].append(record)
    return dict(grouped)


Channel = NewType("Channel", str)
"""The name of a sweep among those of all ledgers; `channel_of` alone makes one."""


def trial_key(sweep_id: str, number: int, role: Role = "search") -> str:
    """Return the key of a sweep's `number`-th trial in its role."""
    mark = "c" if role == "confirmation" else ""
    return f"{sweep_id}-{mark}{number}"


def attempt_id_of(trial: str, number: int) -> str:
    """Return the id of a trial's `number`-th attempt, counted from 1."""
    return f"{trial}.{number}"


def trial_label(trial: str) -> str:
    """Return what names a trial within its sweep: its number, or `c` and its number for a confirmation."""
    return trial.rpartition("-")[2]


def channel_of(sweep_id: str, ledger_id: str) -> Channel:
    """Return the channel of a sweep: one file has the same sweep id in every ledger, and ledgers share a Ray.

    Args:
        sweep_id: of the sweep.
        ledger_id: random id of its ledger.
    """
    return Channel(f"{sweep_id}@{ledger_id}")


def sweep_id_of(trial: str) -> str:
    """Return the id of the sweep that a trial's key belongs to."""
    return trial.rpartition("-")[0]


def trial_key_of(attempt: str) -> str:
    """Return the key of the trial that an attempt's id belongs to."""
    return attempt.rpartition(".")[0]


def attempt_number(attempt: str) -> int:
    """Return the number of an attempt within its trial."""
    return int(attempt.rpartition(".")[2])


def is_confirmation(trial: str) -> bool:
    """Return True if a trial's key names a confirmation, False if it names a trial of the search."""
    return trial_label(trial).startswith("c")


def pack_scores(scores: Iterable[float]) -> str:
    """Return scores as a text, each rounded to 32 bits."""
    floats = array("f", scores)
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(zlib.compress(floats.tobytes(), 9)).decode()


def unpack_scores(text: str) -> list[float]:
    """Return the scores of a text that `pack_scores` has returned."""
    floats = array("f", zlib.decompress(base64.b64decode(text)))
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tolist()
