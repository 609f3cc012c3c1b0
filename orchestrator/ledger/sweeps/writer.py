"""Writer of one sweep: everything that can happen to its rows, one transaction for each method.

Each method is idempotent: run twice, it changes nothing more and emits no event again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import update_wrapper
from operator import itemgetter
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from sqlalchemy import bindparam, delete, func, select, update

from orchestrator.ledger.holder import Token
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.prepared import execute
from orchestrator.ledger.queue.trial_requests import TrialRequest
from orchestrator.ledger.row_backup import renew
from orchestrator.ledger.rows import ATTEMPTS, CHECKPOINTS, EVALUATIONS, MLFLOW_RUNS, REPORTS, SWEEPS, TRIALS
from orchestrator.ledger.sweeps.records import (
    EXTENSIONS,
    FINISHED_SWEEP,
    FINISHED_TRIAL,
    AttemptRecord,
    AttemptState,
    CheckpointRecord,
    EvaluationRecord,
    Event,
    Extension,
    MlflowRunRecord,
    Pending,
    ReportRecord,
    Segment,
    SweepRecord,
    SweepState,
    TrialRecord,
    TrialState,
    attempt_id_of,
    trial_key_of,
)
from orchestrator.ledger.tables import (
    ATTEMPT,
    CHECKPOINT,
    DELETION,
    MLFLOW_RUN,
    NOTE,
    OUTBOX,
    REPORT,
    STOP_REQUEST,
    TRIAL,
    TRIAL_REQUEST,
    WANTED_SETTING,
)
from orchestrator.ledger.transaction import Known, Transaction, statements

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

REISSUED: Mapping[str, TrialState] = {"LOST": "PREEMPTED", "ENDED": "WAITING", "FAILED": "WAITING"}
"""State of a trial that will be started again, by the state of its attempt; a lost one is not charged."""

GENERATIONS = 2
"""Checkpoints kept of each kind: the newest may turn out to be damaged."""


def _never(_: object) -> bool:
    return False


def _always(_: object) -> bool:
    return True


def _transaction(
    acted_on: Callable[[Any], bool] = _never,
) -> Callable[
    [Callable[Concatenate[SweepWriter, Transaction, Arguments], Result]],
    Callable[Concatenate[SweepWriter, Arguments], Result],
]:
    """Run a method in a transaction that checks the token; a retry runs the method again.

    Args:
        acted_on: True for a result on which something outside the ledger acts, so that it is flushed to disk.
    """

    def decorate(
        change: Callable[Concatenate[SweepWriter, Transaction, Arguments], Result],
    ) -> Callable[Concatenate[SweepWriter, Arguments], Result]:
        def method(self: SweepWriter, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            def run(tx: Transaction) -> Result:
                return change(self, tx, *args, **kwargs)

            return self.ledger.write(run, self.token, acted_on)

        update_wrapper(method, change)
        return method

    return decorate


class SweepWriter:
    """Writes the rows of one sweep for the process that holds its lease.

    Every method raises Busy, and changes nothing, once another process has taken the lease.

    >>> with Lease(ledger, sweep_id) as lease:  # doctest: +SKIP
    ...     attempt = lease.writer.start_attempt(trial_key)
    ...     lease.writer.record_report(attempt.id, 100, {"validation/accuracy": 0.7})

    Args:
        ledger: Ledger of the sweep.
        token: Token of the sweep's lease.
    """

    def __init__(self, ledger: Ledger, token: Token) -> None:
        self.ledger, self.token = ledger, token
        self._reported_at: float | None = None
        self._outages_before: dict[str, float] = {}  # seconds of outages before each attempt was taken
        self._latest_end: float | None = None
        self._held: dict[str, _Held] = {}  # by trial, of its running attempt

    @_transaction()
    def check(self, tx: Transaction) -> None:
        """Check the token, before something outside the ledger is deleted."""

    @_transaction(_always)
    def create_sweep(self, tx: Transaction, record: SweepRecord, events: Sequence[Event] = ()) -> None:
        """Add the sweep, unless it exists."""
        tx.sweep_id = record.id
        if tx.find(SWEEPS, record.id) is None:
            tx.insert(SWEEPS, record)
            tx.emit(events)

    @_transaction(_always)
    def set_sweep_state(
        self, tx: Transaction, state: SweepState, reason: str | None = None, events: Sequence[Event] = ()
    ) -> None:
        """Set the state of the sweep, its reason, and the time of its end if the state is final."""
        self._set_state(tx, state, reason, events)

    @_transaction(_always)
    def interrupt_sweep(self, tx: Transaction, reason: str, events: Sequence[Event] = ()) -> None:
        """Set an unfinished sweep INTERRUPTED."""
        self._interrupt(tx, reason, events)

    @_transaction(_always)
    def abandon_sweep(
        self,
        tx: Transaction,
        reason: str,
        closing: Callable[[Sequence[TrialRecord]], Sequence[Event]] = lambda _: (),
    ) -> None:
        """End the running attempts at their last reports and set an unfinished sweep INTERRUPTED.

        No attempt starts after that, whatever other threads do.

        Args:
            tx: Transaction of the change.
            reason: Reason of the interruption.
            closing: Events for the trials of the sweep, as this transaction finds them.
        """
        self._lose_attempts(tx)
        query = select(*TRIAL.columns).where(TRIAL.c.sweep_id == self.token.sweep_id)
        trials = [tx.read(TRIALS, row) for row in tx.connection.execute(query).all()]
        self._interrupt(tx, reason, closing(trials))

    @_transaction()
    def amend_sweep(
        self, tx: Transaction, document: Mapping[str, Any], digest: str, facts: Mapping[str, Any]
    ) -> None:
        """Replace the specification, in fields that may change while a sweep is unfinished."""
        tx.change(SWEEPS, self._sweep(tx), document=document, digest=digest, facts=facts)

    def add_trial(self, record: TrialRecord, events: Sequence[Event] = (), wanted: str | None = None) -> None:
        """Add a trial, unless it exists.

        Args:
            record: The trial.
            events: Events for MLflow.
            wanted: ID of the request that it answers, which is deleted in the same transaction.
        """
        self._add_trial(record, events, wanted)
        if wanted is not None:
            renew(self.ledger, WANTED_SETTING, wanted)

    @_transaction()
    def _add_trial(
        self, tx: Transaction, record: TrialRecord, events: Sequence[Event], wanted: str | None
    ) -> None:
        tx.sweep_id = record.sweep_id
        if tx.find(TRIALS, record.key) is None:
            tx.insert(TRIALS, record)
            tx.emit(events)
        if wanted is not None:
            tx.connection.execute(delete(WANTED_SETTING).where(WANTED_SETTING.c.id == wanted))

    def drop_wanted(self, wanted: str) -> None:
        """Delete the request of a setting that cannot be tried any more."""
        row = delete(WANTED_SETTING).where(WANTED_SETTING.c.id == wanted)
        self.ledger.write(lambda tx: tx.connection.execute(row), self.token)
        renew(self.ledger, WANTED_SETTING, wanted)

    def take_request(self, request: TrialRequest, events: Sequence[Event] = ()) -> None:
        """Record the decision of a user about an unfinished trial, and delete the request.

        A request that a user has replaced meanwhile changes nothing.

        Args:
            request: Request that was read.
            events: Events for MLflow.
        """
        self._take_request(request, events)
        renew(self.ledger, TRIAL_REQUEST, request.trial_key)

    @_transaction()
    def _take_request(self, tx: Transaction, request: TrialRequest, events: Sequence[Event]) -> None:
        trial = trial_of(tx, request.trial_key)
        of_trial = TRIAL_REQUEST.c.trial_key == request.trial_key
        unchanged = (TRIAL_REQUEST.c.decision == request.decision) & (TRIAL_REQUEST.c.at == request.at)
        is_taken = tx.connection.execute(delete(TRIAL_REQUEST).where(of_trial, unchanged)).rowcount
        if is_taken and trial.state not in FINISHED_TRIAL:
            taken = {"by": request.asker, "at": request.at}
            tx.change(TRIALS, trial, system_attrs={**trial.system_attrs, request.decision: taken})
            tx.emit(events)

    def notes_delivered(self, revisions: Mapping[str, int]) -> None:
        """Record the revisions of notes that MLflow has, by sweep ID and trial key."""
        if revisions:
            rows = [{"key": target, "new": revision} for target, revision in revisions.items()]
            self.ledger.write(lambda tx: tx.connection.execute(_NOTE_DELIVERED, rows), self.token)

    @_transaction(_always)
    def reopen(
        self,
        tx: Transaction,
        reason: str,
        trials: Sequence[str] = (),
        extended: Sequence[str] = (),
        steps: int = 0,
        events: Sequence[Event] = (),
    ) -> None:
        """Set a finished sweep INTERRUPTED, and FAILED or extended trials WAITING.

        The change is atomic: after a crash, either all of them are reopened or none.

        Args:
            tx: Transaction of the change.
            reason: Why the sweep continues.
            trials: Keys of the trials; those in other states stay as they are.
            extended: Keys of COMPLETE trials that continue; those in other states stay as they are.
            steps: Steps of each extended trial from now on.
            events: Events for the outbox.
        """
        sweep = self._sweep(tx)
        if sweep.state in FINISHED_SWEEP:
            tx.change(SWEEPS, sweep, state="INTERRUPTED", reason=reason, finished_at=None)
        for trial in (trial_of(tx, key) for key in trials):
            if trial.state == "FAILED":
                tx.change(TRIALS, trial, state="WAITING", cause=None, finished_at=None)
        for trial in (trial_of(tx, key) for key in extended):
            if trial.state == "COMPLETE":
                tx.change(TRIALS, trial, **_extended(trial, steps))
        tx.emit(events)

    def start_attempt(self, trial_key: str, events: Sequence[Event] = ()) -> AttemptRecord:
        """Start the next attempt of an unfinished trial; an attempt that is still running becomes LOST.

        Raises:
            ValueError: The trial is finished, or the sweep INTERRUPTED because its driver is being ended.
        """
        started: list[AttemptRecord] = []
        self._held.pop(trial_key, None)

        def start(tx: Transaction) -> AttemptRecord:
            trial = trial_of(tx, trial_key)
            # If the server was lost before it answered, the commit may stand: do not start a second attempt.
            if started and trial.attempts == started[-1].number:
                return attempt_of(tx, started[-1].id)
            started.append(self._start_attempt(tx, trial, events))
            return started[-1]

        return self.ledger.write(start, self.token)

    def take_attempt(self, attempt_id: str, held: float = 0.0) -> None:
        """Record that a worker has taken an attempt; the first recorded time is kept.

        Args:
            attempt_id: ID of the attempt.
            held: Seconds for which the worker has held its resources.
        """
        self._outages_before[attempt_id] = self.ledger.outages.seconds
        self._take_attempt(attempt_id, held)

    @_transaction()
    def lose_attempts(self, tx: Transaction) -> int:
        """End the attempts that a dead driver left running, before the sweep is resumed; return their number.

        Each attempt ends at its last report, so that the time without a driver is not charged to the budget.
        """
        return self._lose_attempts(tx)

    def record_report(
        self,
        attempt_id: str,
        step: int,
        metrics: Mapping[str, float],
        checkpoints: Sequence[CheckpointRecord] = (),
        events: Sequence[Event] = (),
        node: str | None = None,
        stored: Callable[[Path], str] | None = None,
        at: float | None = None,
    ) -> tuple[Path, ...]:
        """Add the first report of a step, and its checkpoints; ignore an attempt that is not the current one.

        Args:
            attempt_id: ID of the attempt.
            step: Step that the attempt has reached.
            metrics: Metrics at that step; empty for a checkpoint between two reports.
            checkpoints: Checkpoints saved at that step.
            events: Events for the outbox.
            node: Name of the machine that the attempt runs on.
            stored: URL of a folder in the store; None without a store. The returned folders are noted for
                deletion there in the same commit.
            at: Time of the report, from `next_report_at`; the next such time if None.

        Returns:
            The checkpoint folders that no row refers to any more. They may be deleted once the ledger has
            been flushed, not before.
        """
        time = self.next_report_at() if at is None else at
        report = ReportRecord(trial_key_of(attempt_id), step, attempt_id, metrics, time)
        outage = self._outage_of(attempt_id)
        held, left = self._held.pop(report.trial_key, None), None

        def record(tx: Transaction) -> tuple[Path, ...]:
            nonlocal held, left
            rows, held = held, None  # a repeated transaction reads them
            unused, left = self._record_report(tx, report, checkpoints, events, node, outage, stored, rows)
            return unused

        unused = self.ledger.write(record, self.token, at_once=True)
        if left is not None:
            self._held[report.trial_key] = left
        return unused

    @_transaction()
    def end_deletions(self, tx: Transaction, done: Sequence[str], failed: Sequence[str]) -> None:
        """Remove deletions that are done, and count another try of those that failed."""
        tx.sweep_id = self.token.sweep_id
        tx.connection.execute(delete(DELETION).where(DELETION.c.target.in_(done)))
        again = update(DELETION).where(DELETION.c.target.in_(failed))
        tx.connection.execute(again.values(tries=DELETION.c.tries + 1))

    def end_attempt(
        self,
        attempt_id: str,
        state: AttemptState,
        cause: str | None = None,
        trial_state: TrialState | None = None,
        value: float | None = None,
        best_step: int | None = None,
        events: Sequence[Event] = (),
    ) -> bool:
        """End an attempt, and set the state of its trial.

        Args:
            attempt_id: ID of the attempt; nothing changes if it has already ended.
            state: ENDED by itself, LOST with its node or driver, or FAILED through an error of its own.
            cause: Reason in one phrase.
            trial_state: State of the trial from now on; None for a trial that will be started again.
            value: Best validation metric of the trial; required for COMPLETE.
            best_step: Step of `value`.
            events: Events for the outbox.

        Returns:
            Whether this call ended the attempt.

        Raises:
            ValueError: The trial is COMPLETE and has no finite value.
        """
        then, outage = trial_state or REISSUED[state], self._outage_of(attempt_id)
        self._held.pop(trial_key_of(attempt_id), None)

        def end(tx: Transaction) -> bool:
            finished_at = self._end_time(tx) if then in FINISHED_TRIAL else None
            return _end_attempt(
                tx, attempt_id, state, cause, then, value, best_step, finished_at, outage, events
            )

        return self.ledger.write(
            end,
            self.token,
            acted_on=lambda _: then in FINISHED_TRIAL,
        )

    def _end_time(self, tx: Transaction) -> float:
        """Return the time of a trial's end, later than the ends before it even if the clock was set back.

        The end of a search depends on the order of these times, also after a restart.
        """
        if self._latest_end is None:
            ((latest,),) = execute(tx.connection, _LATEST_END, {"sweep_id": self.token.sweep_id})
            self._latest_end = latest or 0.0
        self._latest_end = max(tx.now, math.nextafter(self._latest_end, math.inf))
        return self._latest_end

    @_transaction(_always)
    def prune(
        self,
        tx: Transaction,
        trial_key: str,
        value: float | None,
        best_step: int | None,
        events: Sequence[Event] = (),
        *,
        cause: str | None = None,
    ) -> None:
        """Set an unfinished trial that has no running attempt PRUNED.

        Args:
            tx: Transaction of the change.
            trial_key: Key of the trial.
            value: Best validation metric of the trial.
            best_step: Step of `value`.
            events: Events for the outbox.
            cause: Reason in one sentence.
        """
        trial = trial_of(tx, trial_key)
        if trial.state not in FINISHED_TRIAL:
            outcome = {"state": "PRUNED", "cause": cause, "value": value, "best_step": best_step}
            tx.change(TRIALS, trial, **outcome, finished_at=self._end_time(tx))
            tx.emit(events)

    def exploit(
        self,
        attempt_id: str,
        segment: Segment,
        checkpoint: CheckpointRecord,
        events: Sequence[Event] = (),
        stored: Callable[[Path], str] | None = None,
    ) -> tuple[Path, ...] | None:
        """End an attempt whose trial continues from another trial's checkpoint with other hyperparameters.

        Args:
            attempt_id: ID of the attempt; nothing changes if it has already ended.
            segment: Part of the trial that starts now.
            checkpoint: Pinned copy of the donor's checkpoint.
            events: Events for the outbox.
            stored: As for `record_report`.

        Returns:
            The checkpoint folders that no row refers to any more, because the trial may have reported the
            donor's step itself; None if the attempt had ended.
        """
        self._held.pop(trial_key_of(attempt_id), None)
        return self._exploit(attempt_id, segment, checkpoint, self._outage_of(attempt_id), events, stored)

    @_transaction()
    def drop_checkpoint(self, tx: Transaction, trial_key: str, path: Path) -> None:
        """Delete the rows of a checkpoint whose files are damaged."""
        trial_of(tx, trial_key)
        for record in _checkpoints_of(tx, trial_key):
            if record.path == str(path):
                tx.delete(CHECKPOINTS, record)

    def forget_stop_request(self) -> None:
        """Delete the stop request of an earlier run: a person has started the sweep again."""
        of_sweep = delete(STOP_REQUEST).where(STOP_REQUEST.c.sweep_id == self.token.sweep_id)
        self.ledger.write(lambda tx: tx.connection.execute(of_sweep), self.token)
        renew(self.ledger, STOP_REQUEST, self.token.sweep_id)

    @_transaction(_always)
    def add_evaluation(
        self, tx: Transaction, evaluation: EvaluationRecord, events: Sequence[Event] = ()
    ) -> None:
        """Add an evaluation on a held-out split, unless it exists."""
        trial_of(tx, evaluation.trial_key)
        key = (evaluation.trial_key, evaluation.step, evaluation.split, evaluation.at)
        if tx.find(EVALUATIONS, *key) is None:
            tx.insert(EVALUATIONS, evaluation)
            tx.emit(events)

    @_transaction()
    def record_mlflow_runs(self, tx: Transaction, runs: Mapping[str, str]) -> None:
        """Record MLflow's IDs of runs, by sweep ID or trial key; they replace earlier IDs."""
        sweep_id, number = self.token.sweep_id, self.token.number
        tx.sweep_id = sweep_id
        for run, run_id in runs.items():
            if (old := tx.find(MLFLOW_RUNS, sweep_id, run)) is None:
                tx.insert(MLFLOW_RUNS, MlflowRunRecord(sweep_id, run, run_id, number))
            else:
                position = old.position if old.run_id == run_id else 0.0  # another run is empty
                tx.change(MLFLOW_RUNS, old, run_id=run_id, number=number, position=position)

    @_transaction()
    def delivered(self, tx: Transaction, pending: Pending, batch: int = 0) -> None:
        """Record that MLflow has what was pending: mark the events, and set the positions of the runs.

        Args:
            tx: Transaction of the change.
            pending: What was delivered.
            batch: Number of the batch, which rises; it becomes the position of the sweep's own run.

        Raises:
            KeyError: The run of a report is not recorded.
        """
        sweep_id, chosen = self.token.sweep_id, {row.seq for row in pending.events}
        tx.sweep_id = sweep_id
        if chosen:
            # One range instead of a list of numbers, whose statement would have to be built each time.
            between = {"sweep_id": sweep_id, "first": min(chosen), "last": max(chosen)}
            rows = [row for row in execute(tx.connection, _PENDING_BETWEEN, between) if row[_SEQ] in chosen]
            tx.mark(rows, delivered=True)
        positions: dict[str, float] = pending.positions()
        for run, position in positions.items():
            row = _existing(tx.find(MLFLOW_RUNS, sweep_id, run), "run of MLflow for", run)
            if position > row.position:
                tx.change(MLFLOW_RUNS, row, position=position)
        own = tx.find(MLFLOW_RUNS, sweep_id, sweep_id)
        if own is not None and batch > own.position:
            tx.change(MLFLOW_RUNS, own, position=float(batch))

    @_transaction()
    def redeliver(self, tx: Transaction) -> None:
        """Mark every event as not delivered, and set the positions of all trials back to their start."""
        tx.sweep_id, sweep_id = self.token.sweep_id, {"sweep_id": self.token.sweep_id}
        tx.mark(execute(tx.connection, _DELIVERED, sweep_id), delivered=False)
        for row in execute(tx.connection, _MLFLOW_RUNS, sweep_id):
            run = tx.read(MLFLOW_RUNS, row)
            if run.run != run.sweep_id:
                tx.change(MLFLOW_RUNS, run, position=0.0)

    def next_report_at(self) -> float:
        """Return a time after every report of the sweep, even if the clock has been set back.

        Stopping rules see the reports of earlier drivers in the order of their times.
        """
        if self._reported_at is None:
            self._reported_at = self.ledger.last_report_at(self.token.sweep_id)
        self._reported_at = max(self.ledger.now(), math.nextafter(self._reported_at, math.inf))
        return self._reported_at

    def _outage_of(self, attempt_id: str) -> float | None:
        """Return the seconds of database outages since a worker took an attempt; None without one."""
        seconds = self.ledger.outages.seconds
        return seconds - self._outages_before.get(attempt_id, seconds) or None

    def _sweep(self, tx: Transaction) -> SweepRecord:
        tx.sweep_id = self.token.sweep_id
        sweep: SweepRecord = _existing(tx.find(SWEEPS, tx.sweep_id), "sweep", tx.sweep_id)
        return sweep

    def _set_state(
        self, tx: Transaction, state: SweepState, reason: str | None, events: Sequence[Event]
    ) -> None:
        sweep = self._sweep(tx)
        finished_at = (sweep.finished_at or tx.now) if state in FINISHED_SWEEP else None
        tx.change(SWEEPS, sweep, state=state, reason=reason, finished_at=finished_at)
        tx.emit(events)

    def _interrupt(self, tx: Transaction, reason: str, events: Sequence[Event]) -> None:
        if self._sweep(tx).finished_at is None:
            self._set_state(tx, "INTERRUPTED", reason, events)

    def _start_attempt(self, tx: Transaction, trial: TrialRecord, events: Sequence[Event]) -> AttemptRecord:
        if trial.state in FINISHED_TRIAL:
            raise ValueError(f"no attempt can start: {trial.key} is {trial.state}")
        if self._sweep(tx).state == "INTERRUPTED":
            raise ValueError(f"no attempt can start: {trial.sweep_id} is INTERRUPTED")
        number = trial.attempts + 1
        attempt_id = attempt_id_of(trial.key, number)
        attempt = AttemptRecord(attempt_id, trial.key, number, "RUNNING", None, None, tx.now)
        before = tx.find(ATTEMPTS, attempt_id_of(trial.key, trial.attempts))
        if before is not None and before.state == "RUNNING":
            tx.change(ATTEMPTS, before, state="LOST", cause="superseded", ended_at=_last_report(tx, before))
        tx.insert(ATTEMPTS, attempt)
        tx.change(TRIALS, trial, state="RUNNING", cause=None, attempts=number)
        tx.emit(events)
        return attempt

    @_transaction()
    def _take_attempt(self, tx: Transaction, attempt_id: str, held: float) -> None:
        attempt = attempt_of(tx, attempt_id)
        trial_of(tx, attempt.trial_key)
        if attempt.state == "RUNNING" and attempt.taken_at is None:
            tx.change(ATTEMPTS, attempt, taken_at=tx.now - held)

    def _lose_attempts(self, tx: Transaction) -> int:
        rows = execute(tx.connection, _RUNNING, {"sweep_id": self._sweep(tx).id})
        running = [tx.read(ATTEMPTS, row) for row in rows]
        for attempt in running:
            ended_at = _last_report(tx, attempt)
            tx.change(ATTEMPTS, attempt, state="LOST", cause="driver lost", ended_at=ended_at)
            tx.change(TRIALS, trial_of(tx, attempt.trial_key), state="PREEMPTED", cause="driver lost")
        return len(running)

    def _record_report(
        self,
        tx: Transaction,
        report: ReportRecord,
        checkpoints: Sequence[CheckpointRecord],
        events: Sequence[Event],
        node: str | None,
        outage_seconds: float | None,
        stored: Callable[[Path], str] | None,
        held: _Held | None,
    ) -> tuple[tuple[Path, ...], _Held | None]:
        trial: TrialRecord
        attempt: AttemptRecord | None
        if held is None or held.attempt.id != report.attempt_id:
            trial, before = trial_of(tx, report.trial_key), None
            attempt = tx.find(ATTEMPTS, report.attempt_id)
        else:
            trial, attempt, before = held.trial, held.attempt, held.checkpoints
            tx.sweep_id = trial.sweep_id
            tx.hold(held.columns)
        if attempt is None or attempt.state != "RUNNING" or attempt.number != trial.attempts:
            return (), None
        node = attempt.node if node is None else node
        if (attempt.node, attempt.outage_seconds) != (node, outage_seconds):
            attempt = tx.change(ATTEMPTS, attempt, node=node, outage_seconds=outage_seconds)
        # No report of a trial is beyond its step, so one that is need not be searched for.
        same = None if report.step > trial.step else tx.find(REPORTS, report.trial_key, report.step)
        if same is None:
            same = report
            reported_at = report.at if report.metrics else trial.reported_at
            trial = tx.change(TRIALS, trial, step=max(trial.step, report.step), reported_at=reported_at)
            if report.metrics:  # a checkpoint between two reports has none
                tx.insert(REPORTS, report)
            tx.emit(events)
        if not checkpoints:
            return (), _Held(trial, attempt, before, tx.left(*_HELD))
        if before is None:
            before = _checkpoints_of(tx, trial.key)
        # A step that is reported again may have other metrics, which its checkpoint alone then has.
        saved = [
            replace(row, metrics={}) if (row.step, row.metrics) == (same.step, same.metrics) else row
            for row in checkpoints
        ]
        unused, kept = _supersede(tx, trial, before, saved, stored, report.at)
        return unused, _Held(trial, attempt, kept, tx.left(*_HELD))

    @_transaction(lambda unused: unused is not None)
    def _exploit(
        self,
        tx: Transaction,
        attempt_id: str,
        segment: Segment,
        checkpoint: CheckpointRecord,
        outage: float | None,
        events: Sequence[Event],
        stored: Callable[[Path], str] | None,
    ) -> tuple[Path, ...] | None:
        trial = trial_of(tx, attempt_of(tx, attempt_id).trial_key)
        cause, value, best_step = f"goes on from {segment.donor}", trial.value, trial.best_step
        if not _end_attempt(
            tx, attempt_id, "ENDED", cause, "WAITING", value, best_step, None, outage, events
        ):
            return None
        trial = trial_of(tx, trial.key)
        segments = [*trial.system_attrs.get("segments", []), asdict(segment)]
        attrs = {**trial.system_attrs, "segments": segments}
        tx.change(TRIALS, trial, params=dict(segment.params), system_attrs=attrs, step=segment.step)
        copies = [replace(checkpoint, kind=kind) for kind in ("last", "pinned")]
        return _supersede(tx, trial, _checkpoints_of(tx, trial.key), copies, stored, tx.now).unused


def _extended(trial: TrialRecord, steps: int) -> dict[str, Any]:
    """Return the fields of a COMPLETE trial that change when it continues to more steps."""
    extension = asdict(Extension(trial.step, trial.value, trial.best_step))
    attrs = {**trial.system_attrs, EXTENSIONS: [*trial.system_attrs.get(EXTENSIONS, []), extension]}
    unknown = {"cause": None, "value": None, "best_step": None, "finished_at": None}
    return {"state": "WAITING", "system_attrs": attrs, "total_steps": steps, **unknown}


def trial_of(tx: Transaction, trial_key: str) -> TrialRecord:
    """Return an existing trial, and set `sweep_id` of the transaction to its sweep."""
    trial: TrialRecord = _existing(tx.find(TRIALS, trial_key), "trial", trial_key)
    tx.sweep_id = trial.sweep_id
    return trial


def attempt_of(tx: Transaction, attempt_id: str) -> AttemptRecord:
    """Return an existing attempt."""
    attempt: AttemptRecord = _existing(tx.find(ATTEMPTS, attempt_id), "attempt", attempt_id)
    return attempt


def _existing(record: Any, what: str, key: str) -> Any:
    if record is None:
        raise KeyError(f"no {what} {key!r} in the ledger")
    return record


def _last_report(tx: Transaction, attempt: AttemptRecord) -> float:
    """Return the time of the last report of a trial's newest attempt, else when it was taken or started.

    A step is recorded once and attempts report rising steps, so only the row of the highest step is read.
    """
    newest = execute(tx.connection, _NEWEST_REPORT, {"trial_key": attempt.trial_key})
    own = next((at for attempt_id, at in newest if attempt_id == attempt.id), None)
    return float(own or attempt.taken_at or attempt.started_at)


def _end_attempt(
    tx: Transaction,
    attempt_id: str,
    state: AttemptState,
    cause: str | None,
    trial_state: TrialState,
    value: float | None,
    best_step: int | None,
    finished_at: float | None,
    outage_seconds: float | None,
    events: Sequence[Event],
) -> bool:
    attempt = attempt_of(tx, attempt_id)
    trial = trial_of(tx, attempt.trial_key)
    if attempt.state != "RUNNING":
        return False
    if trial_state == "COMPLETE" and (value is None or not math.isfinite(value)):
        raise ValueError(f"{trial.key}: a COMPLETE trial must have a finite value (got {value})")
    ended = {"state": state, "cause": cause, "ended_at": tx.now, "outage_seconds": outage_seconds}
    tx.change(ATTEMPTS, attempt, **ended)
    outcome = {"state": trial_state, "cause": cause, "value": value, "best_step": best_step}
    tx.change(TRIALS, trial, **outcome, finished_at=finished_at)
    tx.emit(events)
    return True


def _supersede(
    tx: Transaction,
    trial: TrialRecord,
    before: Sequence[CheckpointRecord],
    checkpoints: Sequence[CheckpointRecord],
    stored: Callable[[Path], str] | None,
    now: float,
) -> _Superseded:
    """Add checkpoints of a trial, and note the folders that no row refers to now if they are stored."""
    kept = _keep_checkpoints(tx, before, checkpoints)
    in_use = {row.path for row in kept}
    folders = sorted({row.path for row in (*before, *checkpoints)} - in_use)
    unused = tuple(map(Path, folders))
    if stored is not None:
        # Under another root a checkpoint has another path, and is the same one in the store.
        urls = sorted({stored(folder) for folder in unused} - {stored(Path(path)) for path in in_use})
        _delete_later(tx, trial.sweep_id, urls, now)
    return _Superseded(unused, kept)


def _delete_later(tx: Transaction, sweep_id: str, targets: Sequence[str], now: float) -> None:
    if targets:
        rows = [{"target": target, "sweep_id": sweep_id, "since": now, "tries": 0} for target in targets]
        execute(tx.connection, statements(DELETION).delete, *({"key_target": target} for target in targets))
        execute(tx.connection, statements(DELETION).insert, *rows)


class _Superseded(NamedTuple):
    """Folders without a row that refers to them, and the checkpoints of the trial that are left."""

    unused: tuple[Path, ...]
    kept: Sequence[CheckpointRecord]


class _Held(NamedTuple):
    """Rows that a report has left, so that the next one need not read them.

    Attributes:
        trial: The trial.
        attempt: Its running attempt.
        checkpoints: Its checkpoints, or None if the report has not read them.
        columns: These rows as they are stored.
    """

    trial: TrialRecord
    attempt: AttemptRecord
    checkpoints: Sequence[CheckpointRecord] | None
    columns: Known


_HELD = TRIAL, ATTEMPT, CHECKPOINT


def _keep_checkpoints(
    tx: Transaction, old: Sequence[CheckpointRecord], new: Sequence[CheckpointRecord]
) -> list[CheckpointRecord]:
    """Add checkpoints, drop all but the newest generations of each kind, and return what is left."""
    before = {(row.kind, row.step): row for row in old}
    after = before | {(row.kind, row.step): row for row in new}
    kept = {key: after[key] for key in after.keys() - _superseded(after)}
    for key, row in before.items():
        if kept.get(key) != row:
            tx.delete(CHECKPOINTS, row)
    tx.insert(CHECKPOINTS, *(row for key, row in after.items() if key in kept and row != before.get(key)))
    return list(kept.values())


def _superseded(checkpoints: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return all but the newest generations of each kind, by kind and step."""
    newest_first = sorted(checkpoints, key=itemgetter(1), reverse=True)
    of_kind = [[key for key in newest_first if key[0] == kind] for kind in ("best", "last")]
    return {key for generations in of_kind for key in generations[GENERATIONS:]}


def _checkpoints_of(tx: Transaction, trial_key: str) -> list[CheckpointRecord]:
    rows = execute(tx.connection, _CHECKPOINTS, {"trial_key": trial_key})
    return [tx.read(CHECKPOINTS, row) for row in rows]


# Built once: building a statement costs more than running it.
_NOTE_DELIVERED = update(NOTE).where(NOTE.c.target == bindparam("key")).values(delivered=bindparam("new"))
_SEQ = list(OUTBOX.columns.keys()).index("seq")
_LATEST_END = select(func.max(TRIAL.c.finished_at)).where(TRIAL.c.sweep_id == bindparam("sweep_id"))

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
_MLFLOW_RUNS = select(*MLFLOW_RUN.columns).where(MLFLOW_RUN.c.sweep_id == bindparam("sweep_id"))
_DELIVERED = _EVENTS.where(OUTBOX.c.delivered)
_PENDING_BETWEEN = _EVENTS.where(
    ~OUTBOX.c.delivered, OUTBOX.c.seq.between(bindparam("first"), bindparam("last"))
)
_CHECKPOINTS = (
    select(*CHECKPOINT.columns)
    .where(CHECKPOINT.c.trial_key == bindparam("trial_key"))
    .order_by(CHECKPOINT.c.step.desc(), CHECKPOINT.c.kind)
)
