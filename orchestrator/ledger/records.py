"""What the ledger keeps: one frozen record a row, and the states a row may be in.

Times are seconds since the epoch (UTC) as floats, `at_ms` milliseconds. A mapping holds plain JSON values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SweepState = Literal["RUNNING", "WAITING", "PAUSED", "INTERRUPTED", "COMPLETE", "FAILED"]
TrialState = Literal["WAITING", "RUNNING", "PREEMPTED", "COMPLETE", "PRUNED", "FAILED"]
AttemptState = Literal["RUNNING", "ENDED", "LOST", "FAILED"]
Role = Literal["search", "confirmation"]
CheckpointKind = Literal["best", "last", "pinned"]

FINISHED_SWEEP: frozenset[str] = frozenset({"COMPLETE", "FAILED"})
FINISHED_TRIAL: frozenset[str] = frozenset({"COMPLETE", "PRUNED", "FAILED"})
UNFINISHED_TRIAL: frozenset[str] = frozenset({"WAITING", "RUNNING", "PREEMPTED"})

STATES: Mapping[str, frozenset[str]] = {
    "SweepRecord": FINISHED_SWEEP | {"RUNNING", "WAITING", "PAUSED", "INTERRUPTED"},
    "TrialRecord": FINISHED_TRIAL | UNFINISHED_TRIAL,
    "AttemptRecord": frozenset({"RUNNING", "ENDED", "LOST", "FAILED"}),
}
"""The legal states of each kind of record."""


@dataclass(frozen=True)
class SweepRecord:
    """One search-space file, run once.

    Attributes:
        document: the resolved specification, plain JSON.
        digest: of the specification; the same file gives the same sweep.
        data_source: one phrase naming where the examples came from.
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


@dataclass(frozen=True)
class TrialRecord:
    """One hyperparameter assignment.

    Attributes:
        key: `<sweep>-<number>`, or `<sweep>-c<number>` for a confirmation; the same in every store.
        system_attrs: what the sampler must find again when the study is rebuilt.
        value: the best validation metric, finite; None until the trial is COMPLETE or PRUNED.
        best_step: the step of `value`.
        step: the last reported step.
        attempts: starts so far; the number of the current attempt.
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


@dataclass(frozen=True)
class AttemptRecord:
    """One start of a trial; `id` is `<trial key>.<number>`, from 1; `node` is known by its first report."""

    id: str
    trial_key: str
    number: int
    state: AttemptState
    cause: str | None
    node: str | None
    started_at: float
    ended_at: float | None = None


@dataclass(frozen=True)
class ReportRecord:
    """The metrics of one trial at one step; there is one a step, whichever attempt was first."""

    trial_key: str
    step: int
    attempt_id: str
    metrics: Mapping[str, float]
    at: float


@dataclass(frozen=True)
class CheckpointRecord:
    """A verified checkpoint folder on disk; `pinned` ones are never superseded."""

    trial_key: str
    step: int
    kind: CheckpointKind
    path: str
    digest: str
    bytes: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Segment:
    """A part of a trial's life that begins with another trial's state; kept in the trial's system attributes.

    Attributes:
        step: of the donor's checkpoint, where it begins.
        donor: key of the trial that the state is from.
        params: the trial's hyperparameters from here on.
    """

    step: int
    donor: str
    params: Mapping[str, Any]


@dataclass(frozen=True)
class EvaluationRecord:
    """One reading of a held-out split for a chosen checkpoint."""

    trial_key: str
    step: int
    split: str
    metrics: Mapping[str, float]
    at: float


@dataclass(frozen=True)
class Event:
    """Something the tracker shall be told, exactly once; `run` is a sweep id or a trial key."""

    kind: str
    run: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    at_ms: int = 0


@dataclass(frozen=True)
class OutboxRow:
    """An event that is not yet delivered; `seq` rises in the order the events happened."""

    seq: int
    event: Event
