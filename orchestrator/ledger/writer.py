"""The changes of one sweep, each in a transaction that compares the token of its driver first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import delete

from orchestrator.ledger import changes
from orchestrator.ledger.decision_backup import renew
from orchestrator.ledger.holder import Token
from orchestrator.ledger.keys import trial_key_of
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import (
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
from orchestrator.ledger.tables import STOP_REQUEST
from orchestrator.ledger.transaction import Transaction

Result = TypeVar("Result")


class SweepWriter:
    """Writes the rows of one sweep on behalf of the process that holds its lease.

    Every method raises Busy, and changes nothing, once another process has taken the lease.

    Args:
        ledger: holds the sweep.
        token: of the lease of the sweep.
    """

    def __init__(self, ledger: Ledger, token: Token) -> None:
        self.ledger, self.token = ledger, token
        self._reported_at: float | None = None
        self._outages_before: dict[str, float] = {}  # seconds of outages before each attempt was taken

    def check(self) -> None:
        """Change nothing; call it before something outside the ledger is deleted."""
        self._write(lambda _: None)

    def create_sweep(self, record: SweepRecord, events: Sequence[Event] = ()) -> None:
        """Add the sweep, unless it exists."""
        self._write(lambda tx: changes.create_sweep(tx, record, events), _always)

    def set_sweep_state(
        self, state: SweepState, reason: str | None = None, events: Sequence[Event] = ()
    ) -> None:
        """Set the state of a sweep, and the reason for it."""
        sweep_id, now = self.token.sweep_id, self.ledger.now()
        self._write(lambda tx: changes.set_sweep_state(tx, sweep_id, state, reason, now, events), _always)

    def interrupt_sweep(self, reason: str, events: Sequence[Event] = ()) -> None:
        """Set the sweep INTERRUPTED; leave a finished one as it is."""
        sweep_id, now = self.token.sweep_id, self.ledger.now()
        self._write(lambda tx: changes.interrupt_sweep(tx, sweep_id, reason, now, events), _always)

    def abandon_sweep(
        self, reason: str, closing: Callable[[Sequence[TrialRecord]], Sequence[Event]] = lambda _: ()
    ) -> None:
        """End the running attempts at their last reports and set the sweep INTERRUPTED, in one transaction.

        A finished sweep is left as it is. No attempt starts after that, whatever other threads are doing.

        Args:
            reason: of the end.
            closing: returns events for the sweep's trials, as this transaction finds them.
        """
        sweep_id, now = self.token.sweep_id, self.ledger.now()

        def abandon(tx: Transaction) -> None:
            changes.lose_attempts(tx, sweep_id)
            events = closing(changes.trials_of(tx, sweep_id))
            changes.interrupt_sweep(tx, sweep_id, reason, now, events)

        self._write(abandon, _always)

    def amend_sweep(self, document: Mapping[str, Any], digest: str, facts: Mapping[str, Any]) -> None:
        """Replace the specification of a sweep, after a change that is allowed to an unfinished one."""
        self._write(lambda tx: changes.amend_sweep(tx, self.token.sweep_id, document, digest, facts))

    def add_trial(self, record: TrialRecord, events: Sequence[Event] = ()) -> None:
        """Add a trial, unless it exists."""
        self._write(lambda tx: changes.add_trial(tx, record, events))

    def reopen(self, reason: str, trials: Sequence[str] = ()) -> None:
        """Set the sweep INTERRUPTED if it has finished, and the FAILED among some trials WAITING.

        This is one transaction: a driver that dies in it has reopened nothing, and no trial is forgotten.

        Args:
            reason: why the sweep goes on.
            trials: keys of the trials; those in other states are left as they are.
        """
        sweep_id = self.token.sweep_id
        self._write(lambda tx: changes.reopen(tx, sweep_id, reason, trials), _always)

    def start_attempt(self, trial_key: str, events: Sequence[Event] = ()) -> AttemptRecord:
        """Start the next attempt of an unfinished trial; an attempt that is still running becomes LOST.

        Raises:
            ValueError: the trial is finished, or the sweep INTERRUPTED.
        """
        now = self.ledger.now()
        started: list[AttemptRecord] = []

        def start(tx: Transaction) -> AttemptRecord:
            # If the server was lost before it answered, the commit may stand: do not start a second attempt.
            number = started[-1].number if started else None
            started.append(changes.start_attempt(tx, trial_key, number, now, events))
            return started[-1]

        return self._write(start)

    def take_attempt(self, attempt_id: str, held: float = 0.0) -> None:
        """Record that a worker has taken an attempt, and has held resources for `held` seconds."""
        now = self.ledger.now() - held
        self._outages_before[attempt_id] = self.ledger.outages.seconds
        self._write(lambda tx: changes.take_attempt(tx, attempt_id, now))

    def lose_attempts(self) -> int:
        """End the attempts that a dead driver left running; return how many there were.

        Call it before a sweep is resumed. Each attempt ends at its last report, so that the
        time without a driver is not charged to the budget.
        """
        return self._write(lambda tx: changes.lose_attempts(tx, self.token.sweep_id))

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
        """Add the first report of a step, and any checkpoints; ignore an attempt that is not the current one.

        Args:
            attempt_id: of the attempt.
            step: that the attempt has reached.
            metrics: at that step; empty for a checkpoint between two reports.
            checkpoints: saved at that step.
            events: put in the outbox by the same commit.
            node: name of the machine that the attempt runs on.
            stored: returns the URL of a folder in the store, or None without a store. The same commit notes
                that the returned folders are to be deleted there.
            at: of the report, from `next_report_at`; None for the next time.

        Returns:
            The checkpoint folders that no row refers to since this commit: safe to delete once the ledger has
            been flushed, not before.
        """
        time = self.next_report_at() if at is None else at
        report = ReportRecord(trial_key_of(attempt_id), step, attempt_id, metrics, time)
        outage = self._outage_of(attempt_id)
        return self._write(
            lambda tx: changes.record_report(tx, report, checkpoints, events, node, outage, stored)
        )

    def end_deletions(self, done: Sequence[str], failed: Sequence[str]) -> None:
        """Forget deletions that are done, and count another try of those that failed."""
        sweep_id = self.token.sweep_id
        self._write(lambda tx: changes.end_deletions(tx, sweep_id, done, failed))

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
            attempt_id: of the attempt; nothing changes if it has already ended.
            state: ENDED by itself, LOST with its node or driver, or FAILED through an error of its own.
            cause: why, in one phrase.
            trial_state: the trial's state from now on; None leaves the trial to be started again.
            value: the trial's best validation metric; required for COMPLETE.
            best_step: the step of `value`.
            events: put in the outbox by the same commit.

        Returns:
            Whether this call ended the attempt.
        """
        now, then = self.ledger.now(), trial_state or changes.REISSUED[state]
        outage = self._outage_of(attempt_id)
        return self._write(
            lambda tx: changes.end_attempt(
                tx, attempt_id, state, cause, then, value, best_step, now, outage, events
            ),
            acted_on=lambda _: then in FINISHED_TRIAL,
        )

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
            attempt_id: of the attempt; nothing changes if it has already ended.
            segment: the part of the trial that starts now.
            checkpoint: the trial's own copy of the donor's checkpoint; it is pinned.
            events: put in the outbox by the same commit.
            stored: as for `record_report`.

        Returns:
            The checkpoint folders that no row refers to since this commit; None if the attempt had ended.
        """
        now, outage = self.ledger.now(), self._outage_of(attempt_id)
        return self._write(
            lambda tx: changes.exploit(tx, attempt_id, segment, checkpoint, now, outage, events, stored),
            acted_on=lambda unused: unused is not None,
        )

    def drop_checkpoint(self, trial_key: str, path: Path) -> None:
        """Delete the rows of a checkpoint whose files turned out to be damaged."""
        self._write(lambda tx: changes.forget_checkpoint(tx, trial_key, str(path)))

    def forget_stop_request(self) -> None:
        """Delete the stop request of an earlier run: a person has started the sweep again."""
        requests = delete(STOP_REQUEST).where(STOP_REQUEST.c.sweep_id == self.token.sweep_id)
        self._write(lambda tx: tx.connection.execute(requests))
        renew(self.ledger, STOP_REQUEST, self.token.sweep_id)

    def add_evaluation(self, evaluation: EvaluationRecord, events: Sequence[Event] = ()) -> None:
        """Add an evaluation on a held-out split, unless it exists."""
        self._write(lambda tx: changes.add_evaluation(tx, evaluation, events), _always)

    def record_mlflow_runs(self, runs: Mapping[str, str]) -> None:
        """Record MLflow's ids of runs, by sweep id or trial key; they replace ids recorded before."""
        sweep_id, number = self.token.sweep_id, self.token.number
        self._write(lambda tx: changes.record_mlflow_runs(tx, sweep_id, runs, number))

    def delivered(self, seqs: Sequence[int]) -> None:
        """Mark events of the outbox as delivered.

        A delivered point is removed: a long sweep has millions, and each repeats a report or an evaluation.
        """
        sweep_id = self.token.sweep_id
        self._write(lambda tx: changes.deliver(tx, sweep_id, seqs))

    def add_events(self, events: Sequence[Event]) -> None:
        """Put events in the outbox again that were removed from it."""
        self._write(lambda tx: changes.add_events(tx, self.token.sweep_id, events))

    def redeliver(self) -> int:
        """Mark the delivered events that the outbox has kept as not delivered; return how many there were."""
        return self._write(lambda tx: changes.redeliver(tx, self.token.sweep_id))

    def next_report_at(self) -> float:
        """Return a time after every report of the sweep, even if the clock has been set back.

        Stopping rules see the reports of earlier drivers in the order of their times.
        """
        if self._reported_at is None:
            self._reported_at = self.ledger.last_report_at(self.token.sweep_id)
        self._reported_at = max(self.ledger.now(), math.nextafter(self._reported_at, math.inf))
        return self._reported_at

    def _outage_of(self, attempt_id: str) -> float | None:
        """Return the seconds of outages of the database since a worker took an attempt; None if none were."""
        seconds = self.ledger.outages.seconds
        return seconds - self._outages_before.get(attempt_id, seconds) or None

    def _write(
        self, change: Callable[[Transaction], Result], acted_on: Callable[[Result], bool] = lambda _: False
    ) -> Result:
        return self.ledger._write(change, self.token, acted_on)


def _always(_: object) -> bool:
    return True
