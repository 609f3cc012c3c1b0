"""Everything that can happen to a sweep: each function changes the rows of one sweep inside a transaction.

Each change is idempotent: run twice, it changes nothing more and emits no event again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import bindparam, delete, insert, select, update

from orchestrator.ledger.keys import attempt_id
from orchestrator.ledger.prepared import execute
from orchestrator.ledger.records import (
    FINISHED_SWEEP,
    FINISHED_TRIAL,
    POINTS,
    AttemptRecord,
    AttemptState,
    CheckpointRecord,
    EvaluationRecord,
    Event,
    MlflowRunRecord,
    ReportRecord,
    Segment,
    SweepRecord,
    SweepState,
    TrialRecord,
    TrialState,
)
from orchestrator.ledger.rows import ATTEMPTS, CHECKPOINTS, EVALUATIONS, MLFLOW_RUNS, REPORTS, SWEEPS, TRIALS
from orchestrator.ledger.tables import ATTEMPT, CHECKPOINT, DELETION, OUTBOX, REPORT, TRIAL
from orchestrator.ledger.transaction import Transaction

# The state of a trial that will be started again; a lost attempt is not charged to the trial.
REISSUED: Mapping[str, TrialState] = {"LOST": "PREEMPTED", "ENDED": "WAITING", "FAILED": "WAITING"}

# The generation behind the newest is kept too, because the newest may turn out to be damaged.
GENERATIONS = 2


def create_sweep(tx: Transaction, record: SweepRecord, events: Sequence[Event]) -> None:
    """Add a sweep, unless it exists."""
    tx.sweep_id = record.id
    if tx.find(SWEEPS, record.id) is None:
        tx.insert(SWEEPS, record)
        tx.emit(events)


def set_sweep_state(
    tx: Transaction, sweep_id: str, state: SweepState, reason: str | None, now: float, events: Sequence[Event]
) -> None:
    """Set the state of a sweep, and the time of its end if the state is final."""
    sweep = sweep_of(tx, sweep_id)
    finished_at = (sweep.finished_at or now) if state in FINISHED_SWEEP else None
    tx.change(SWEEPS, sweep, state=state, reason=reason, finished_at=finished_at)
    tx.emit(events)


def interrupt_sweep(tx: Transaction, sweep_id: str, reason: str, now: float, events: Sequence[Event]) -> None:
    """Set a sweep INTERRUPTED; leave a finished one as it is."""
    if sweep_of(tx, sweep_id).finished_at is None:
        set_sweep_state(tx, sweep_id, "INTERRUPTED", reason, now, events)


def amend_sweep(
    tx: Transaction, sweep_id: str, document: Mapping[str, Any], digest: str, facts: Mapping[str, Any]
) -> None:
    """Replace the specification, in fields that may change while a sweep is unfinished."""
    tx.change(SWEEPS, sweep_of(tx, sweep_id), document=document, digest=digest, facts=facts)


def add_trial(tx: Transaction, record: TrialRecord, events: Sequence[Event]) -> None:
    """Add a trial, unless it exists."""
    tx.sweep_id = record.sweep_id
    if tx.find(TRIALS, record.key) is None:
        tx.insert(TRIALS, record)
        tx.emit(events)


def reopen(tx: Transaction, sweep_id: str, reason: str, trial_keys: Sequence[str]) -> None:
    """Set a finished sweep INTERRUPTED, and the FAILED among some trials WAITING: they are tried again."""
    sweep = sweep_of(tx, sweep_id)
    if sweep.state in FINISHED_SWEEP:
        tx.change(SWEEPS, sweep, state="INTERRUPTED", reason=reason, finished_at=None)
    for trial in (trial_of(tx, key) for key in trial_keys):
        if trial.state == "FAILED":
            tx.change(TRIALS, trial, state="WAITING", cause=None, finished_at=None)


def start_attempt(
    tx: Transaction, trial_key: str, number: int | None, now: float, events: Sequence[Event]
) -> AttemptRecord:
    """Start an attempt of a trial.

    Args:
        tx: the transaction.
        trial_key: of the trial.
        number: of the attempt, if the same change may have been committed before; None for the next attempt.
        now: seconds since the epoch.
        events: put in the outbox by the same commit.

    Raises:
        ValueError: the trial is finished, or the sweep INTERRUPTED: its driver is being ended.
    """
    trial = trial_of(tx, trial_key)
    if number is not None and trial.attempts == number:
        return attempt_of(tx, attempt_id(trial_key, number))
    if trial.state in FINISHED_TRIAL:
        raise ValueError(f"no attempt can start: {trial_key} is {trial.state}")
    if sweep_of(tx, trial.sweep_id).state == "INTERRUPTED":
        raise ValueError(f"no attempt can start: {trial.sweep_id} is INTERRUPTED")
    number = trial.attempts + 1
    attempt = AttemptRecord(attempt_id(trial_key, number), trial_key, number, "RUNNING", None, None, now)
    before = tx.find(ATTEMPTS, attempt_id(trial_key, trial.attempts))
    if before is not None and before.state == "RUNNING":
        tx.change(ATTEMPTS, before, state="LOST", cause="superseded", ended_at=_last_report(tx, before))
    tx.insert(ATTEMPTS, attempt)
    tx.change(TRIALS, trial, state="RUNNING", cause=None, attempts=number)
    tx.emit(events)
    return attempt


def take_attempt(tx: Transaction, attempt_id: str, now: float) -> None:
    """Record when a worker took an attempt; the first time stands."""
    attempt = attempt_of(tx, attempt_id)
    trial_of(tx, attempt.trial_key)
    if attempt.state == "RUNNING" and attempt.taken_at is None:
        tx.change(ATTEMPTS, attempt, taken_at=now)


def lose_attempts(tx: Transaction, sweep_id: str) -> int:
    """End every attempt that a dead driver left running, at its last report; return how many there were."""
    sweep_of(tx, sweep_id)
    rows = execute(tx.connection, _RUNNING, {"sweep_id": sweep_id})
    running = [tx.read(ATTEMPTS, row) for row in rows]
    for attempt in running:
        tx.change(ATTEMPTS, attempt, state="LOST", cause="driver lost", ended_at=_last_report(tx, attempt))
        tx.change(TRIALS, trial_of(tx, attempt.trial_key), state="PREEMPTED", cause="driver lost")
    return len(running)


def trials_of(tx: Transaction, sweep_id: str) -> list[TrialRecord]:
    """Return the trials of a sweep."""
    query = select(*TRIAL.columns).where(TRIAL.c.sweep_id == sweep_id)
    return [tx.read(TRIALS, row) for row in tx.connection.execute(query).all()]


def _last_report(tx: Transaction, attempt: AttemptRecord) -> float:
    """Return the time of the last report of a trial's newest attempt, else when it was taken or started.

    An attempt ends at this time, so that the time between two drivers is not charged to it. A step is
    recorded once and attempts report rising steps, so only the row of the highest step is read.
    """
    newest = execute(tx.connection, _NEWEST_REPORT, {"trial_key": attempt.trial_key})
    own = next((at for attempt_id, at in newest if attempt_id == attempt.id), None)
    return float(own or attempt.taken_at or attempt.started_at)


def record_report(
    tx: Transaction,
    report: ReportRecord,
    checkpoints: Sequence[CheckpointRecord],
    events: Sequence[Event],
    node: str | None,
    outage_seconds: float | None,
    stored: Callable[[Path], str] | None = None,
) -> tuple[Path, ...]:
    """Add the first report of a step, and its checkpoints; return the folders that no row refers to now.

    With a store, `stored` returns the URL of a folder in it; what no row refers to is to be deleted there.
    """
    trial = trial_of(tx, report.trial_key)
    attempt = tx.find(ATTEMPTS, report.attempt_id)
    if attempt is None or attempt.state != "RUNNING" or attempt.number != trial.attempts:
        return ()
    node = attempt.node if node is None else node
    if (attempt.node, attempt.outage_seconds) != (node, outage_seconds):
        tx.change(ATTEMPTS, attempt, node=node, outage_seconds=outage_seconds)
    # No report of a trial is beyond its step, so one that is need not be searched for.
    if report.step > trial.step or tx.find(REPORTS, report.trial_key, report.step) is None:
        reported_at = trial.reported_at
        if report.metrics:  # a checkpoint between two reports has none
            tx.insert(REPORTS, report)
            reported_at = report.at
        tx.change(TRIALS, trial, step=max(trial.step, report.step), reported_at=reported_at)
        tx.emit(events)
    return supersede(tx, trial, checkpoints, stored, report.at)


def supersede(
    tx: Transaction,
    trial: TrialRecord,
    checkpoints: Sequence[CheckpointRecord],
    stored: Callable[[Path], str] | None,
    now: float,
) -> tuple[Path, ...]:
    """Add checkpoints of a trial; return the folders that no row refers to now, noted if they are stored."""
    unused, kept = keep_checkpoints(tx, trial.key, checkpoints)
    if stored is not None:
        # Under another root a checkpoint has another path, and is the same one in the store.
        urls = sorted({stored(folder) for folder in unused} - {stored(folder) for folder in kept})
        delete_later(tx, trial.sweep_id, urls, now)
    return unused


def delete_later(tx: Transaction, sweep_id: str, targets: Sequence[str], now: float) -> None:
    """Note what is to be deleted outside the ledger once this transaction is committed."""
    if not targets:
        return
    rows = [{"target": target, "sweep_id": sweep_id, "since": now, "tries": 0} for target in targets]
    tx.connection.execute(delete(DELETION).where(DELETION.c.target.in_(targets)))
    tx.connection.execute(insert(DELETION), rows)


def end_deletions(tx: Transaction, sweep_id: str, done: Sequence[str], failed: Sequence[str]) -> None:
    """Forget deletions that are done, and count another try of those that failed."""
    tx.sweep_id = sweep_id
    tx.connection.execute(delete(DELETION).where(DELETION.c.target.in_(done)))
    more = update(DELETION).where(DELETION.c.target.in_(failed)).values(tries=DELETION.c.tries + 1)
    tx.connection.execute(more)


class Folders(NamedTuple):
    """The folders of a trial's checkpoints after a change: what no row refers to now, and what rows do."""

    unused: tuple[Path, ...]
    kept: tuple[Path, ...]


def keep_checkpoints(tx: Transaction, trial_key: str, new: Sequence[CheckpointRecord]) -> Folders:
    """Add checkpoints, and drop all but the newest generations of each kind."""
    if not new:
        return Folders((), ())
    before = {(row.kind, row.step): row for row in checkpoints_of(tx, trial_key)}
    after = before | {(row.kind, row.step): row for row in new}
    kept = {place: after[place] for place in after.keys() - _superseded(after)}
    for place, row in before.items():
        if kept.get(place) != row:
            tx.delete(CHECKPOINTS, row)
    tx.insert(
        CHECKPOINTS, *(row for place, row in after.items() if place in kept and row != before.get(place))
    )
    in_use = {row.path for row in kept.values()}
    unused = {row.path for row in (*before.values(), *new)} - in_use
    return Folders(*(tuple(map(Path, sorted(paths))) for paths in (unused, in_use)))


def checkpoints_of(tx: Transaction, trial_key: str) -> list[CheckpointRecord]:
    """Return the checkpoints of a trial, the newest first."""
    rows = execute(tx.connection, _CHECKPOINTS, {"trial_key": trial_key})
    return [tx.read(CHECKPOINTS, row) for row in rows]


def _superseded(places: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return all but the newest generations of each kind, by kind and step."""
    newest_first = sorted(places, key=itemgetter(1), reverse=True)
    of_kind = [[place for place in newest_first if place[0] == kind] for kind in ("best", "last")]
    return {place for generations in of_kind for place in generations[GENERATIONS:]}


def forget_checkpoint(tx: Transaction, trial_key: str, path: str) -> None:
    """Delete the rows of the checkpoints in one folder."""
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
    outage_seconds: float | None,
    events: Sequence[Event],
) -> bool:
    """End an attempt and set its trial's state; return False if the attempt has already ended.

    Raises:
        ValueError: the trial is COMPLETE and has no finite value.
    """
    attempt = attempt_of(tx, attempt_id)
    trial = trial_of(tx, attempt.trial_key)
    if attempt.state != "RUNNING":
        return False
    if trial_state == "COMPLETE" and (value is None or not math.isfinite(value)):
        raise ValueError(f"{trial.key}: a COMPLETE trial must have a finite value, got {value}")
    ended = {"state": state, "cause": cause, "ended_at": now, "outage_seconds": outage_seconds}
    tx.change(ATTEMPTS, attempt, **ended)
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
    outage_seconds: float | None,
    events: Sequence[Event],
    stored: Callable[[Path], str] | None = None,
) -> tuple[Path, ...] | None:
    """End an attempt whose trial continues from another's checkpoint; return None if already ended.

    Else return the folders that no row refers to now: the trial may have reported the donor's step itself.
    """
    trial = trial_of(tx, attempt_of(tx, attempt_id).trial_key)
    cause, value, best_step = f"goes on from {segment.donor}", trial.value, trial.best_step
    if not end_attempt(
        tx, attempt_id, "ENDED", cause, "WAITING", value, best_step, now, outage_seconds, events
    ):
        return None
    trial = trial_of(tx, trial.key)
    segments = [*trial.system_attrs.get("segments", []), asdict(segment)]
    attrs = {**trial.system_attrs, "segments": segments}
    tx.change(TRIALS, trial, params=dict(segment.params), system_attrs=attrs, step=segment.step)
    return supersede(tx, trial, [replace(checkpoint, kind=kind) for kind in ("last", "pinned")], stored, now)


def add_evaluation(tx: Transaction, evaluation: EvaluationRecord, events: Sequence[Event]) -> None:
    """Add an evaluation on a held-out split, unless it exists."""
    trial_of(tx, evaluation.trial_key)
    key = (evaluation.trial_key, evaluation.step, evaluation.split, evaluation.at)
    if tx.find(EVALUATIONS, *key) is None:
        tx.insert(EVALUATIONS, evaluation)
        tx.emit(events)


def record_mlflow_runs(tx: Transaction, sweep_id: str, runs: Mapping[str, str], number: int) -> None:
    """Record MLflow's ids of runs, under the number of a token; they replace ids recorded before."""
    tx.sweep_id = sweep_id
    for run, run_id in runs.items():
        if (old := tx.find(MLFLOW_RUNS, sweep_id, run)) is None:
            tx.insert(MLFLOW_RUNS, MlflowRunRecord(sweep_id, run, run_id, number))
        else:
            tx.change(MLFLOW_RUNS, old, run_id=run_id, number=number)


def deliver(tx: Transaction, sweep_id: str, seqs: Sequence[int]) -> None:
    """Mark events of a sweep as delivered, and remove the points among them."""
    if not seqs:
        return
    # One range instead of a list of numbers, whose statement would have to be built each time.
    between = {"sweep_id": sweep_id, "first": min(seqs), "last": max(seqs)}
    chosen = set(seqs)
    rows = [row for row in execute(tx.connection, _PENDING_BETWEEN, between) if row[_SEQ] in chosen]
    if rows:
        tx.sweep_id = sweep_id
        tx.forget([row for row in rows if row[_KIND] == POINTS])
        tx.mark([row for row in rows if row[_KIND] != POINTS], delivered=True)


def add_events(tx: Transaction, sweep_id: str, events: Sequence[Event]) -> None:
    """Put events in the outbox of a sweep that belong to no other change."""
    tx.sweep_id = sweep_id
    tx.emit(events)


def redeliver(tx: Transaction, sweep_id: str) -> int:
    """Mark every delivered event that is kept as not delivered; return how many there are."""
    tx.sweep_id = sweep_id
    rows = execute(tx.connection, _DELIVERED, {"sweep_id": sweep_id})
    tx.mark(rows, delivered=False)
    return len(rows)


# Built once: building a statement costs more than running it.
_SEQ, _KIND = (list(OUTBOX.columns.keys()).index(name) for name in ("seq", "kind"))
_NEWEST_REPORT = (
    select(REPORT.c.attempt_id, REPORT.c.at)
    .where(REPORT.c.trial_key == bindparam("trial_key"))
    .order_by(REPORT.c.step.desc())
    .limit(1)
)
_RUNNING = (
    select(*ATTEMPT.columns)
    .join(TRIAL, ATTEMPT.c.trial_key == TRIAL.c.key)
    .where(TRIAL.c.sweep_id == bindparam("sweep_id"), ATTEMPT.c.state == "RUNNING")
)
_EVENTS = select(*OUTBOX.columns).where(OUTBOX.c.sweep_id == bindparam("sweep_id"))
_DELIVERED = _EVENTS.where(OUTBOX.c.delivered)
_PENDING_BETWEEN = _EVENTS.where(
    ~OUTBOX.c.delivered, OUTBOX.c.seq.between(bindparam("first"), bindparam("last"))
)
_CHECKPOINTS = (
    select(*CHECKPOINT.columns)
    .where(CHECKPOINT.c.trial_key == bindparam("trial_key"))
    .order_by(CHECKPOINT.c.step.desc(), CHECKPOINT.c.kind)
)


def sweep_of(tx: Transaction, sweep_id: str) -> SweepRecord:
    """Return a sweep, which must exist, and make the transaction one of that sweep."""
    tx.sweep_id = sweep_id
    sweep: SweepRecord = _existing(tx.find(SWEEPS, sweep_id), "sweep", sweep_id)
    return sweep


def trial_of(tx: Transaction, trial_key: str) -> TrialRecord:
    """Return a trial, which must exist, and make the transaction one of the trial's sweep."""
    trial: TrialRecord = _existing(tx.find(TRIALS, trial_key), "trial", trial_key)
    tx.sweep_id = trial.sweep_id
    return trial


def attempt_of(tx: Transaction, attempt_id: str) -> AttemptRecord:
    """Return an attempt, which must exist."""
    attempt: AttemptRecord = _existing(tx.find(ATTEMPTS, attempt_id), "attempt", attempt_id)
    return attempt


def _existing(record: Any, what: str, key: str) -> Any:
    if record is None:
        raise KeyError(f"no {what} {key!r} in the ledger")
    return record
