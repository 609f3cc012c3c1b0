"""What a sweep does at a moment: its running trials, its best value so far, its budget, and its place.

It is read from the ledger alone: no Ray, JAX, MLflow, Optuna or pandas is imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.api.queue import QueuedSweep, queue
from orchestrator.api.status import DetailedStatus, status
from orchestrator.api.workspace import Workspace
from orchestrator.ledger import audit
from orchestrator.ledger.audit import AuditEntry
from orchestrator.ledger.keys import trial_label
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.paces import Pace
from orchestrator.ledger.records import (
    FINISHED_TRIAL,
    AttemptRecord,
    ReportRecord,
    SweepRecord,
    TrialRecord,
)
from orchestrator.session.board import Progress, time_left
from orchestrator.session.limits import spent

Record = TypeVar("Record")

MOST_RUNNING = 64
"""Most running trials whose reports are read."""

MOST_EVENTS = 20
"""Most events, the newest, that are told."""

_SPEED_REPORTS = 8


@dataclass(frozen=True)
class RunningTrial:
    """A trial that runs.

    Attributes:
        label: its number, or `c` and its number for a confirmation.
        step: the last reported step.
        total_steps: at which it ends, unless it is pruned.
        value: the objective in its last report, or None before the first.
        steps_per_second: between its last reports, or None before the second.
    """

    label: str
    step: int
    total_steps: int
    value: float | None
    steps_per_second: float | None

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds until its last step at its present speed, or None if that is not known."""
        if not self.steps_per_second:
            return None
        return max(0, self.total_steps - self.step) / self.steps_per_second


@dataclass(frozen=True)
class Budget:
    """What a sweep may spend and what its attempts have spent so far; None is no limit.

    Attributes:
        trials: of the search.
        hours: wall-clock hours in which a worker held resources.
        gpu_hours: hours of all attempts, times their shares of a GPU.
        spent_hours: of `hours`.
        spent_gpu_hours: of `gpu_hours`.
    """

    trials: int
    hours: float | None
    gpu_hours: float | None
    spent_hours: float
    spent_gpu_hours: float


@dataclass(frozen=True)
class SweepEvent:
    """What has happened to a sweep.

    Attributes:
        at: seconds since the epoch.
        what: such as `attempt started`, `attempt LOST` or `stop`.
        trial: label of the trial, or None.
        detail: the node, the cause or the user, or None.
    """

    at: float
    what: str
    trial: str | None
    detail: str | None


@dataclass(frozen=True)
class LiveSweep:
    """A sweep at a moment.

    Attributes:
        status: its state, its progress with an estimate of the time left, and its failures.
        running: the running trials by number, at most `MOST_RUNNING`.
        best_values: the best value so far after each complete trial of the search, by the time of its end.
        place: what it may run and why it waits, or None if neither a driver nor the service holds it.
        budget: None if no driver has begun.
        events: the last ones, the newest first.
    """

    status: DetailedStatus
    running: Sequence[RunningTrial]
    best_values: Sequence[float]
    place: QueuedSweep | None
    budget: Budget | None = None
    events: Sequence[SweepEvent] = ()

    @property
    def best_label(self) -> str | None:
        """Return the label of the best trial so far, or None."""
        best = self.status.progress.best_key
        return None if best is None else trial_label(best)

    def document(self) -> dict[str, Any]:
        """Return the attributes as plain JSON values; a value that is not finite is None."""
        running = [
            {**asdict(trial), "value": _finite(trial.value), "seconds_left": trial.seconds_left}
            for trial in self.running
        ]
        now = self.status
        # `asdict` makes a Counter of pairs of a Counter.
        replaced = {"driver": str(now.driver) if now.driver else None, "failures": dict(now.failures)}
        return {
            "status": {**asdict(now), **replaced},
            "running": running,
            "best_values": list(self.best_values),
            "place": None if self.place is None else self.place.document(),
            "budget": None if self.budget is None else asdict(self.budget),
            "events": [asdict(event) for event in self.events],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> LiveSweep:
        """Return the sweep of a document, perhaps of a later version; its driver is not known here."""
        progress = _made(Progress, document["status"]["progress"])
        place, budget = document["place"], document.get("budget")
        return cls(
            _made(DetailedStatus, {**document["status"], "driver": None, "progress": progress}),
            tuple(_made(RunningTrial, trial) for trial in document["running"]),
            tuple(document["best_values"]),
            None if place is None else QueuedSweep.of(place),
            None if budget is None else _made(Budget, budget),
            tuple(_made(SweepEvent, event) for event in document.get("events", ())),
        )


def live(name: str | None = None, *, root: str | Path | None = None) -> LiveSweep:
    """Return what a sweep does at this moment.

    Args:
        name: id of the sweep or its beginning; the newest sweep if None.
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: there is no ledger, or `name` does not name one sweep of it.
    """
    now = status(name, root=root)
    place = next((entry for entry in queue(root=root) if entry.sweep == now.id), None)
    with Workspace.at(root).ledger() as ledger:
        record = ledger.sweep(now.id)
        asked = audit.entries(ledger, target=now.id, limit=MOST_EVENTS)
        if record is None:
            return LiveSweep(now, (), (), place, events=events((), asked))
        trials, attempts = ledger.trials(record.id), ledger.attempts(record.id)
        is_idle = now.state in ("PARKED", "QUEUED", "WAITING")
        running = () if is_idle else tuple(_running(ledger, record, trials))
        budget = _budget(record, attempts, ledger.now() if "RUNNING" in now.trials else None)
        told = events(ledger.recent_attempts(record.id, MOST_EVENTS), asked)
    if now.state == "RUNNING":
        left = _seconds_left(trials, attempts, running, now.progress)
        now = replace(now, progress=replace(now.progress, seconds_left=left))
    best = best_values(trials, maximize=_maximizes(record))
    return LiveSweep(now, running, best, place, budget, told)


def events(attempts: Iterable[AttemptRecord], asked: Iterable[AuditEntry]) -> tuple[SweepEvent, ...]:
    """Return what has happened to a sweep, the newest first, at most `MOST_EVENTS`.

    Args:
        attempts: that have started or ended last.
        asked: what users have asked for.
    """
    told = [SweepEvent(entry.at, entry.action, None, entry.actor) for entry in asked]
    for attempt in attempts:
        label = trial_label(attempt.trial_key)
        told.append(SweepEvent(attempt.started_at, "attempt started", label, attempt.node))
        if attempt.ended_at is not None:
            told.append(SweepEvent(attempt.ended_at, f"attempt {attempt.state}", label, attempt.cause))
    return tuple(sorted(told, key=lambda event: event.at, reverse=True)[:MOST_EVENTS])


def best_values(trials: Sequence[TrialRecord], *, maximize: bool) -> tuple[float, ...]:
    """Return the best value so far after each complete trial of the search, in the order of their ends."""
    better = max if maximize else min
    ended = sorted(
        (trial.finished_at or 0.0, trial.number, trial.value)
        for trial in trials
        if trial.state == "COMPLETE" and trial.role == "search" and trial.value is not None
    )
    best: list[float] = []
    for _, _, value in ended:
        best.append(better(best[-1], value) if best else value)
    return tuple(best)


def _seconds_left(
    trials: Sequence[TrialRecord],
    attempts: Iterable[AttemptRecord],
    running: Sequence[RunningTrial],
    progress: Progress,
) -> float | None:
    """Return the seconds until all trials of the search have ended, or None if that is not known."""
    ended = {trial.key for trial in trials if trial.state in FINISHED_TRIAL}
    took: dict[str, float] = dict.fromkeys(ended, 0.0)
    for attempt in attempts:
        if attempt.trial_key in ended and attempt.ended_at is not None and attempt.held_from is not None:
            took[attempt.trial_key] += max(0.0, attempt.ended_at - attempt.held_from)
    going = progress.states.get("RUNNING", 0)
    own = [trial.seconds_left for trial in running] + [None] * max(0, going - len(running))
    whole = [trial.total_steps / trial.steps_per_second for trial in running if trial.steps_per_second]
    waiting = max(0, progress.wanted - progress.settled - going)
    return time_left([*took.values()] or whole, own, waiting)


def seconds_left(trials: Sequence[TrialRecord], wanted: int) -> float | None:
    """Return the seconds until all trials of the search have ended, at the rate of the last twenty.

    Args:
        trials: of the sweep.
        wanted: trials of the search at the end.
    """
    search = [trial for trial in trials if trial.role == "search" and trial.state in FINISHED_TRIAL]
    ends = sorted(trial.finished_at for trial in search if trial.finished_at is not None)
    return Pace(len(search), tuple(ends)).seconds_left(wanted)


def steps_per_second(reports: Sequence[ReportRecord]) -> float | None:
    """Return the speed of a trial between those of its last reports that one attempt has made.

    Args:
        reports: of the trial, by step.
    """
    same = [report for report in reports if report.attempt_id == reports[-1].attempt_id]
    if len(same) < 2 or same[-1].at <= same[0].at:
        return None
    return (same[-1].step - same[0].step) / (same[-1].at - same[0].at)


def _running(ledger: Ledger, record: SweepRecord, trials: Sequence[TrialRecord]) -> Iterator[RunningTrial]:
    metric = str(record.facts["metric"])
    for trial in [trial for trial in trials if trial.state == "RUNNING"][:MOST_RUNNING]:
        reports = ledger.recent_reports(trial.key, _SPEED_REPORTS)
        value = reports[-1].metrics.get(metric) if reports else None
        yield RunningTrial(
            trial_label(trial.key), trial.step, trial.total_steps, value, steps_per_second(reports)
        )


def _budget(record: SweepRecord, attempts: Iterable[AttemptRecord], now: float | None) -> Budget:
    """Return the budget of a sweep, whose running attempts, if there are any, have spent until now."""
    until_now = [
        replace(attempt, ended_at=now) if attempt.state == "RUNNING" else attempt for attempt in attempts
    ]
    limits, used = record.document["budget"], spent(until_now, record)
    return Budget(
        int(limits["trials"]),
        limits.get("hours"),
        limits.get("gpu_hours"),
        used.hours,
        used.gpu_hours,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _made(kind: type[Record], values: Mapping[str, Any]) -> Record:
    """Return a dataclass from those values that it has attributes for."""
    return kind(**{field.name: values[field.name] for field in fields(kind)})  # type: ignore[arg-type]


def _maximizes(record: SweepRecord) -> bool:
    return bool(record.facts["direction"] == "maximize")
