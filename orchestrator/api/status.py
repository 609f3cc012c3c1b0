"""The state of sweeps, read from the ledger alone: no Ray, JAX, MLflow, Optuna or pandas is imported."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from orchestrator.api.workspace import Workspace, one_of
from orchestrator.config import from_document
from orchestrator.config.strategy import most_trials
from orchestrator.config.trainable import task_of
from orchestrator.counts import counted
from orchestrator.errors import BadInput, Exit
from orchestrator.ledger import submissions
from orchestrator.ledger.clock import ClockSetting
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.known import KnownSweep, known_sweeps
from orchestrator.ledger.lease import holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import DRIVEN_SWEEP, FINISHED_SWEEP, UNFINISHED_TRIAL, SweepRecord
from orchestrator.ledger.selection import best_of_sweep, total_violation, violations_of
from orchestrator.ledger.submissions import Submission
from orchestrator.service.start_order import seconds_left
from orchestrator.session.board import Progress, TrialBoard
from orchestrator.system import System


@dataclass(frozen=True)
class Status:
    """The state of one sweep.

    Attributes:
        id: id of the sweep.
        state: the state in the ledger; INTERRUPTED if its driver ended without saying so; QUEUED or PARKED
            if the service is to start a driver, or no longer does after too many crashes.
        reason: why the sweep is in this state, or None.
        task: name of the task.
        profile: name of the profile, or None.
        driver: the process that drives the sweep, or None.
        trials: number of search trials by state.
        waiting_for_mlflow: number of records that MLflow has not received yet.
        created_at: seconds since the epoch.
        finished_at: seconds since the epoch, or None.
    """

    id: str
    state: str
    reason: str | None
    task: str
    profile: str | None
    driver: Holder | None
    trials: Mapping[str, int]
    waiting_for_mlflow: int
    created_at: float
    finished_at: float | None

    def document(self) -> dict[str, Any]:
        """Return the attributes above as plain JSON values."""
        values = asdict(self)
        return {field.name: values[field.name] for field in fields(Status)}


@dataclass(frozen=True)
class DetailedStatus(Status):
    """The state of one sweep, its progress and its failures.

    Attributes:
        metric: the metric that decides which trial is best.
        progress: search trials by state, the best one so far.
        failures: number of failed search trials by cause.
    """

    metric: str
    progress: Progress
    failures: Mapping[str, int]


def sweeps(*, root: str | Path | None = None) -> list[Status]:
    """Return the state of every sweep, the oldest first.

    Args:
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: there is no ledger.
    """
    with Workspace.at(root).ledger() as ledger:
        records = ledger.sweeps()
        submitted = {entry.sweep_id: entry for entry in submissions.submissions(ledger)}
        known = [overview(ledger, record, submitted.pop(record.id, None)) for record in records]
        return [*known, *(overview(ledger, None, entry) for entry in submitted.values())]


def overview(ledger: Ledger, record: SweepRecord | None, submission: Submission | None) -> Status:
    """Return the state of a sweep whose record or submission, or both, have been read."""
    if record is not None:
        return Status(**_row(ledger, record, submission))
    assert submission is not None, "no sweep is ever forgotten"
    return Status(**_submitted_row(submission, ledger.system))


def status(name: str | None = None, *, root: str | Path | None = None) -> DetailedStatus:
    """Return the state of one sweep.

    Args:
        name: id of the sweep or its beginning; the newest sweep if None.
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: there is no ledger, or `name` does not name one sweep of it.
    """
    with Workspace.at(root).ledger() as ledger:
        known = known_sweeps(ledger)
        sweep_id = one_of(known, name) if name else _newest(ledger, known)
        record = ledger.sweep(sweep_id)
        if record is not None:
            return detailed(ledger, record)
        submission = submissions.submission(ledger, sweep_id)
        assert submission is not None, "no sweep is ever forgotten"
        return _submitted(submission, ledger.system)


def detailed(ledger: Ledger, record: SweepRecord) -> DetailedStatus:
    """Return the state of a sweep whose record has been read."""
    row = _row(ledger, record, submissions.submission(ledger, record.id))
    key, value = _best_so_far(ledger, record, row["trials"]) or (None, None)
    return DetailedStatus(
        **row,
        metric=str(record.facts["metric"]),
        progress=Progress(
            row["trials"],
            max(sum(row["trials"].values()), most_trials(record.document)),
            key,
            value,
            state=row["state"],
            reason=row["reason"],
        ),
        failures=ledger.failures(record.id),
    )


def _best_so_far(ledger: Ledger, record: SweepRecord, states: Mapping[str, int]) -> tuple[str, float] | None:
    """Return the key and value of the best trial so far, or None: the same that the driver of a sweep names.

    Of an unfinished sweep the best report of a trial that is not complete yet counts too, and while no other
    trial has a value, that of a pruned one.
    """
    best = best_of_sweep(ledger, record)
    if record.state in FINISHED_SWEEP or not (UNFINISHED_TRIAL | {"PRUNED"}) & states.keys():
        return None if best is None or best.value is None else (best.key, best.value)
    constraints = record.document.get("constraints") or {}
    search = [trial for trial in ledger.trials(record.id) if trial.role == "search"]
    board = TrialBoard(
        search, maximize=record.facts["direction"] == "maximize", violations=violations_of(ledger, record)
    )
    metric = str(record.facts["metric"])
    for trial in search:
        if trial.state == "PRUNED" and trial.value is not None:
            board.score(trial, trial.value)
        if trial.state in UNFINISHED_TRIAL and trial.step:
            kept = ledger.trial_checkpoints(trial.key)
            if (saved := next((row for row in kept if row.kind == "best"), None)) is not None:
                board.score(trial, saved.metrics[metric], total_violation(constraints, saved.metrics))
    return board.best


def _submitted(submission: Submission, system: System) -> DetailedStatus:
    """Return the state of a submitted sweep that no driver has begun."""
    specification = from_document(submission.document, submission.text)
    row = _submitted_row(submission, system)
    most = most_trials(submission.document)
    progress = Progress({}, most, None, None, state=row["state"], reason=row["reason"])
    return DetailedStatus(**row, metric=specification.metric, progress=progress, failures={})


def _row(ledger: Ledger, record: SweepRecord, submission: Submission | None) -> dict[str, Any]:
    driver = holder(ledger, record.id)
    state: str = record.state
    reason = record.reason or (_why_failed(ledger, record) if state == "FAILED" else None)
    if driver is None and record.state in DRIVEN_SWEEP:
        state, reason = "INTERRUPTED", "its driver is gone"
    if driver is None and submission is not None and state not in FINISHED_SWEEP:
        state, reason = state_without_driver(submission, ledger.system) or (state, reason)
    return {
        "id": record.id,
        "state": state,
        "reason": reason,
        "task": record.task,
        "profile": record.profile,
        "driver": driver,
        "trials": _as_shown(ledger.states(record.id), runs=driver is not None and state != "WAITING"),
        "waiting_for_mlflow": ledger.backlog(record.id),
        "created_at": record.created_at,
        "finished_at": record.finished_at,
    }


def _as_shown(states: Mapping[str, int], *, runs: bool) -> Mapping[str, int]:
    """Return how many trials are in each state; where nothing runs now, those that did are waiting.

    Their rows say RUNNING until the next driver ends their attempts, or a worker takes them.
    """
    if runs or "RUNNING" not in states:
        return states
    waiting = states["RUNNING"] + states.get("WAITING", 0)
    return {**{state: count for state, count in states.items() if state != "RUNNING"}, "WAITING": waiting}


def _why_failed(ledger: Ledger, record: SweepRecord) -> str | None:
    """Return the most frequent cause of the failures of a sweep without a complete trial."""
    if not (failures := Counter(ledger.failures(record.id))):
        return None
    ((cause, count),) = failures.most_common(1)
    return f"{count} of {counted(sum(ledger.states(record.id).values()), 'trial')} failed: {cause}"


def _submitted_row(submission: Submission, system: System) -> dict[str, Any]:
    refused = "FAILED" if submission.code == Exit.BAD_INPUT else "INTERRUPTED"
    state, reason = state_without_driver(submission, system) or (refused, submission.cause)
    return {
        "id": submission.sweep_id,
        "state": state,
        "reason": reason,
        "task": task_of(submission.document),
        "profile": submission.document.get("profile"),
        "driver": None,
        "trials": {},
        "waiting_for_mlflow": 0,
        "created_at": submission.at,
        "finished_at": None,
    }


def state_without_driver(submission: Submission, system: System) -> tuple[str, str | None] | None:
    """Return the state of a submission whose sweep no process drives, and the reason; None if it has ended.

    Args:
        submission: of the sweep.
        system: of this process; times are by its clock, as it is set now.
    """
    cause = submission.cause
    if submission.state == "STARTED":
        return "QUEUED", "its driver is starting"
    if submission.state == "PARKED":
        crashes = counted(submission.crashes, "time")
        return "PARKED", f"crashed {crashes} without a report, the last time: {cause}"
    if submission.state == "ENDED":
        return None
    clock = ClockSetting.here(system)
    shown = submission.by(clock)
    if seconds_left(shown, clock.now(system)):
        at = time.strftime("%H:%M:%S", time.localtime(shown.next_try))
        return "QUEUED", f"starts again at {at}, because: {cause}"
    return "QUEUED", cause


def _newest(ledger: Ledger, known: Mapping[str, KnownSweep]) -> str:
    if not known:
        raise BadInput(ledger.where, "must hold a sweep", "none", "Run one first.")
    return max(known, key=lambda sweep_id: known[sweep_id].since)
