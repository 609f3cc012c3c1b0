"""What may happen to a sweep, each as one change of its rows inside a transaction.

Each is right to run twice: what is already so is left alone, and its events are not told again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from orchestrator.ledger.generations import checkpoints_of, keep_checkpoints
from orchestrator.ledger.keys import attempt_id
from orchestrator.ledger.records import (
    FINISHED_SWEEP,
    FINISHED_TRIAL,
    AttemptRecord,
    AttemptState,
    CheckpointRecord,
    EvaluationRecord,
    Event,
    ReportRecord,
    Segment,
    SweepRecord,
    SweepState,
    TrialRecord,
    TrialState,
)
from orchestrator.ledger.rows import ATTEMPTS, CHECKPOINTS, READINGS, REPORTS, SWEEPS, TRIALS
from orchestrator.ledger.tables import ATTEMPT, OUTBOX, REPORT, TRIAL
from orchestrator.ledger.transaction import Transaction

# Where a trial goes that is to be started again: a lost attempt is not charged to it.
REISSUED: Mapping[str, TrialState] = {"LOST": "PREEMPTED", "ENDED": "WAITING", "FAILED": "WAITING"}


def create_sweep(tx: Transaction, record: SweepRecord, events: Sequence[Event]) -> None:
    """Add a sweep that is not there yet."""
    tx.sweep_id = record.id
    if tx.find(SWEEPS, record.id) is None:
        tx.insert(SWEEPS, record)
        tx.emit(events)


def set_sweep_state(
    tx: Transaction, sweep_id: str, state: SweepState, reason: str | None, now: float, events: Sequence[Event]
) -> None:
    """Give a sweep a state; finished ones get their time."""
    sweep = sweep_of(tx, sweep_id)
    finished_at = (sweep.finished_at or now) if state in FINISHED_SWEEP else None
    tx.change(SWEEPS, sweep, state=state, reason=reason, finished_at=finished_at)
    tx.emit(events)


def amend_sweep(
    tx: Transaction, sweep_id: str, document: Mapping[str, Any], digest: str, facts: Mapping[str, Any]
) -> None:
    """Replace what the specification says, for the fields that may change while a sweep lives."""
    tx.change(SWEEPS, sweep_of(tx, sweep_id), document=document, digest=digest, facts=facts)


def add_trial(tx: Transaction, record: TrialRecord, events: Sequence[Event]) -> None:
    """Add a trial that is not there yet."""
    tx.sweep_id = record.sweep_id
    if tx.find(TRIALS, record.key) is None:
        tx.insert(TRIALS, record)
        tx.emit(events)


def reopen_trial(tx: Transaction, trial_key: str, events: Sequence[Event]) -> None:
    """Let a failed trial be tried again."""
    trial = trial_of(tx, trial_key)
    if trial.state == "FAILED":
        tx.change(TRIALS, trial, state="WAITING", cause=None, finished_at=None)
        tx.emit(events)


def start_attempt(
    tx: Transaction, trial_key: str, number: int | None, now: float, events: Sequence[Event]
) -> AttemptRecord:
    """Start an attempt of a trial.

    Args:
        tx: the transaction.
        trial_key: of the trial.
        number: of the attempt, where the same change may have been made already; None for the next.
        now: seconds since the epoch.
        events: told with it.

    Raises:
        ValueError: the trial is finished.
    """
    trial = trial_of(tx, trial_key)
    if number is not None and trial.attempts == number:
        return attempt_of(tx, attempt_id(trial_key, number))
    if trial.state in FINISHED_TRIAL:
        raise ValueError(f"no attempt can start: {trial_key} is {trial.state}")
    number = trial.attempts + 1
    attempt = AttemptRecord(attempt_id(trial_key, number), trial_key, number, "RUNNING", None, None, now)
    before = tx.find(ATTEMPTS, attempt_id(trial_key, trial.attempts))
    if before is not None and before.state == "RUNNING":
        tx.change(ATTEMPTS, before, state="LOST", cause="superseded", ended_at=_last_sign(tx, before))
    tx.insert(ATTEMPTS, attempt)
    tx.change(TRIALS, trial, state="RUNNING", cause=None, attempts=number)
    tx.emit(events)
    return attempt


def lose_attempts(tx: Transaction, sweep_id: str) -> int:
    """End every attempt that a dead driver has left running, at its last sign of life; count them."""
    sweep_of(tx, sweep_id)
    of_sweep = (TRIAL.c.sweep_id == sweep_id) & (ATTEMPT.c.state == "RUNNING")
    query = select(*ATTEMPT.columns).join(TRIAL, ATTEMPT.c.trial_key == TRIAL.c.key).where(of_sweep)
    left = [tx.read(ATTEMPTS, row) for row in tx.connection.execute(query).all()]
    for attempt in left:
        tx.change(ATTEMPTS, attempt, state="LOST", cause="driver lost", ended_at=_last_sign(tx, attempt))
        tx.change(TRIALS, trial_of(tx, attempt.trial_key), state="PREEMPTED", cause="driver lost")
    return len(left)


def _last_sign(tx: Transaction, attempt: AttemptRecord) -> float:
    """Return when an attempt reported last: a night between two drivers is no time that it took."""
    newest = select(func.max(REPORT.c.at)).where(REPORT.c.attempt_id == attempt.id)
    return float(tx.connection.execute(newest).scalar_one() or attempt.started_at)


def record_report(
    tx: Transaction,
    report: ReportRecord,
    checkpoints: Sequence[CheckpointRecord],
    events: Sequence[Event],
    node: str | None,
) -> tuple[Path, ...]:
    """Keep the first report of a step and its checkpoints; return the folders that nothing needs now."""
    trial = trial_of(tx, report.trial_key)
    attempt = tx.find(ATTEMPTS, report.attempt_id)
    if attempt is None or attempt.state != "RUNNING" or attempt.number != trial.attempts:
        return ()
    if node is not None and attempt.node != node:
        tx.change(ATTEMPTS, attempt, node=node)
    if tx.find(REPORTS, report.trial_key, report.step) is None:
        if report.metrics:  # without them it is a checkpoint between two reports
            tx.insert(REPORTS, report)
        tx.change(TRIALS, trial, step=max(trial.step, report.step))
        tx.emit(events)
    return keep_checkpoints(tx, report.trial_key, checkpoints)


def forget_checkpoint(tx: Transaction, trial_key: str, path: str) -> None:
    """Forget the checkpoints in one folder."""
    trial_of(tx, trial_key)
    for record in checkpoints_of(tx, trial_key):
        if record.path == path:
            tx.delete(CHECKPOINTS, record)


def end_attempt(
    tx: Transaction,
    attempt_id: str,
    state: AttemptState,
    cause: str | None,
    trial_state: TrialState,
    value: float | None,
    best_step: int | None,
    now: float,
    events: Sequence[Event],
) -> bool:
    """End an attempt and move its trial on; return False for an attempt that has ended already.

    Raises:
        ValueError: a COMPLETE trial has no finite value.
    """
    attempt = attempt_of(tx, attempt_id)
    trial = trial_of(tx, attempt.trial_key)
    if attempt.state != "RUNNING":
        return False
    if trial_state == "COMPLETE" and (value is None or not math.isfinite(value)):
        raise ValueError(f"{trial.key}: a COMPLETE trial must have a finite value, got {value}")
    tx.change(ATTEMPTS, attempt, state=state, cause=cause, ended_at=now)
    finished_at = now if trial_state in FINISHED_TRIAL else None
    outcome = {"state": trial_state, "cause": cause, "value": value, "best_step": best_step}
    tx.change(TRIALS, trial, **outcome, finished_at=finished_at)
    tx.emit(events)
    return True


def exploit(
    tx: Transaction,
    attempt_id: str,
    segment: Segment,
    checkpoint: CheckpointRecord,
    now: float,
    events: Sequence[Event],
) -> bool:
    """End an attempt, and let its trial go on from another's checkpoint; False if it has ended already."""
    trial = trial_of(tx, attempt_of(tx, attempt_id).trial_key)
    cause = f"goes on from {segment.donor}"
    if not end_attempt(tx, attempt_id, "ENDED", cause, "WAITING", trial.value, trial.best_step, now, events):
        return False
    trial = trial_of(tx, trial.key)
    segments = [*trial.system_attrs.get("segments", []), asdict(segment)]
    attrs = {**trial.system_attrs, "segments": segments}
    tx.change(TRIALS, trial, params=dict(segment.params), system_attrs=attrs, step=segment.step)
    keep_checkpoints(tx, trial.key, [replace(checkpoint, kind=kind) for kind in ("last", "pinned")])
    return True


def add_reading(tx: Transaction, reading: EvaluationRecord, events: Sequence[Event]) -> None:
    """Add a reading of a held-out split."""
    trial_of(tx, reading.trial_key)
    if tx.find(READINGS, reading.trial_key, reading.step, reading.split, reading.at) is None:
        tx.insert(READINGS, reading)
        tx.emit(events)


def deliver(tx: Transaction, seqs: Sequence[int]) -> None:
    """Mark events of one sweep as delivered."""
    rows = tx.connection.execute(_EVENTS.where(OUTBOX.c.seq.in_(seqs), ~OUTBOX.c.delivered)).all()
    if rows:
        tx.sweep_id = rows[0].sweep_id
        tx.mark(rows, delivered=True)


def redeliver(tx: Transaction, sweep_id: str) -> int:
    """Mark every event of a sweep as not delivered; return how many there are."""
    tx.sweep_id = sweep_id
    rows = tx.connection.execute(_EVENTS.where(OUTBOX.c.sweep_id == sweep_id, OUTBOX.c.delivered)).all()
    tx.mark(rows, delivered=False)
    return len(rows)


_EVENTS = select(*OUTBOX.columns)


def sweep_of(tx: Transaction, sweep_id: str) -> SweepRecord:
    """Return a sweep that must exist, and count the transaction as its own."""
    tx.sweep_id = sweep_id
    return _existing(tx.find(SWEEPS, sweep_id), "sweep", sweep_id)


def trial_of(tx: Transaction, trial_key: str) -> TrialRecord:
    """Return a trial that must exist, and count the transaction as its sweep's."""
    trial = _existing(tx.find(TRIALS, trial_key), "trial", trial_key)
    tx.sweep_id = trial.sweep_id
    return trial


def attempt_of(tx: Transaction, attempt_id: str) -> AttemptRecord:
    """Return an attempt that must exist."""
    return _existing(tx.find(ATTEMPTS, attempt_id), "attempt", attempt_id)


def _existing(record: Any, what: str, key: str) -> Any:
    if record is None:
        raise KeyError(f"no {what} {key!r} in the ledger")
    return record
