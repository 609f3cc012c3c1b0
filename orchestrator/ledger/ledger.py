"""The ledger: who asks what, who changes what, each in one transaction of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, Select, func, or_, select

from orchestrator.errors import BadInput
from orchestrator.ledger import changes
from orchestrator.ledger.backup import Entry, append, appending, backup_file
from orchestrator.ledger.connect import WRITING, connect, database_file, flush, is_file, parse
from orchestrator.ledger.holder import busy
from orchestrator.ledger.keys import trial_key_of
from orchestrator.ledger.records import (
    FINISHED_TRIAL,
    AttemptRecord,
    AttemptState,
    CheckpointRecord,
    EvaluationRecord,
    Event,
    OutboxRow,
    ReportRecord,
    Role,
    Segment,
    SweepRecord,
    SweepState,
    TrialRecord,
    TrialState,
)
from orchestrator.ledger.retry import patiently
from orchestrator.ledger.row_lease import holds
from orchestrator.ledger.rows import (
    ATTEMPTS,
    CHECKPOINTS,
    READINGS,
    REPORTS,
    SWEEPS,
    TRIALS,
    Codec,
    Record,
    opened,
)
from orchestrator.ledger.schema import migrate
from orchestrator.ledger.tables import ATTEMPT, CHECKPOINT, OUTBOX, READING, REPORT, SWEEP, TRIAL
from orchestrator.ledger.transaction import Transaction

Result = TypeVar("Result")


class Ledger:
    """The authority on every sweep of one database; safe to share between threads.

    Attributes:
        where: the address without its password, for people to read.
        is_file: whether it is a SQLite file, with a backup beside it.
    """

    def __init__(self, address: URL, engine: Engine, clock: Callable[[], float] = time.time) -> None:
        self.address = address
        self.where = address.render_as_string(hide_password=True)
        self.is_file = is_file(address)
        self._engine, self._clock = engine, clock
        self._fences: dict[str, int] = {}

    @classmethod
    def open(cls, url: str, *, create: bool = True, clock: Callable[[], float] = time.time) -> Ledger:
        """Open the ledger at `url`, brought up to date first where it has to be.

        Args:
            url: of a SQLite file or a PostgreSQL database.
            create: whether to make a SQLite file that is not there.
            clock: seconds since the epoch.

        Raises:
            BadInput: the address cannot be a ledger, there is none, or the database does not answer.
            Damaged: the file is no sound database.
        """
        address = parse(url)
        if is_file(address):
            _prepare_folder(database_file(address), create)
        ledger = cls(address, connect(address), clock)
        patiently(lambda: migrate(ledger._engine, address), ledger.where, reconnect_seconds=0.0)
        return ledger

    def __repr__(self) -> str:
        return f"Ledger({self.where})"

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def create_sweep(self, record: SweepRecord, events: Sequence[Event] = ()) -> None:
        """Add a sweep; one that is there already is left as it is."""
        self._write(lambda tx: changes.create_sweep(tx, record, events), _always)

    def set_sweep_state(
        self, sweep_id: str, state: SweepState, reason: str | None = None, events: Sequence[Event] = ()
    ) -> None:
        """Give a sweep a state and the reason for it."""
        now = self._clock()
        self._write(lambda tx: changes.set_sweep_state(tx, sweep_id, state, reason, now, events), _always)

    def amend_sweep(
        self, sweep_id: str, document: Mapping[str, Any], digest: str, facts: Mapping[str, Any]
    ) -> None:
        """Replace the specification of a sweep, after a change that is allowed to a living one."""
        self._write(lambda tx: changes.amend_sweep(tx, sweep_id, document, digest, facts))

    def add_trial(self, record: TrialRecord, events: Sequence[Event] = ()) -> None:
        """Add a trial; one that is there already is left as it is."""
        self._write(lambda tx: changes.add_trial(tx, record, events))

    def reopen_trial(self, trial_key: str, events: Sequence[Event] = ()) -> None:
        """Set a FAILED trial WAITING; others are left as they are."""
        self._write(lambda tx: changes.reopen_trial(tx, trial_key, events))

    def start_attempt(self, trial_key: str, events: Sequence[Event] = ()) -> AttemptRecord:
        """Start the next attempt of an unfinished trial; one that still ran counts as lost.

        Raises:
            ValueError: the trial is finished.
        """
        now = self._clock()
        tried: list[AttemptRecord] = []

        def start(tx: Transaction) -> AttemptRecord:
            # A commit whose answer got lost with its server is not made twice.
            number = tried[-1].number if tried else None
            tried.append(changes.start_attempt(tx, trial_key, number, now, events))
            return tried[-1]

        return self._write(start)

    def lose_attempts(self, sweep_id: str) -> int:
        """End the attempts that a dead driver has left running; return how many there were.

        To be called under the lease, before a sweep goes on. Each ends at its last report, so that the budget
        is not charged with the time in which nobody drove.
        """
        return self._write(lambda tx: changes.lose_attempts(tx, sweep_id))

    def record_report(
        self,
        attempt_id: str,
        step: int,
        metrics: Mapping[str, float],
        checkpoints: Sequence[CheckpointRecord] = (),
        events: Sequence[Event] = (),
        node: str | None = None,
    ) -> tuple[Path, ...]:
        """Keep the first report of a step, and any checkpoints; ignore an attempt that is not current.

        Args:
            attempt_id: the attempt.
            step: that it has reached.
            metrics: at that step; none for a checkpoint between two reports.
            checkpoints: saved with it.
            events: told with it.
            node: name of the machine that the attempt runs on.

        Returns:
            The checkpoint folders that this commit made superfluous: safe to delete now, not before.
        """
        report = ReportRecord(trial_key_of(attempt_id), step, attempt_id, metrics, self._clock())
        return self._write(lambda tx: changes.record_report(tx, report, checkpoints, events, node), bool)

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
        """End an attempt together with its trial.

        Args:
            attempt_id: the attempt; one that has ended already is left alone.
            state: ENDED by itself, LOST with its node or driver, FAILED by its own doing.
            cause: why, in one phrase.
            trial_state: of the trial from now on; None leaves it to be started again.
            value: the trial's best validation metric, needed for COMPLETE.
            best_step: the step of `value`.
            events: told with it.

        Returns:
            Whether this call ended it.
        """
        now, then = self._clock(), trial_state or changes.REISSUED[state]
        return self._write(
            lambda tx: changes.end_attempt(tx, attempt_id, state, cause, then, value, best_step, now, events),
            acted_on=lambda _: then in FINISHED_TRIAL,
        )

    def exploit(
        self, attempt_id: str, segment: Segment, checkpoint: CheckpointRecord, events: Sequence[Event] = ()
    ) -> bool:
        """End an attempt whose trial goes on from another's checkpoint with other hyperparameters.

        Args:
            attempt_id: the attempt; one that has ended already is left alone.
            segment: what begins.
            checkpoint: the donor's, copied so that it is the trial's own; it is pinned.
            events: told with it.

        Returns:
            Whether this call ended it.
        """
        now = self._clock()
        return self._write(
            lambda tx: changes.exploit(tx, attempt_id, segment, checkpoint, now, events), acted_on=bool
        )

    def drop_checkpoint(self, trial_key: str, path: Path) -> None:
        """Forget a checkpoint whose files turned out to be damaged."""
        self._write(lambda tx: changes.forget_checkpoint(tx, trial_key, str(path)))

    def add_reading(self, reading: EvaluationRecord, events: Sequence[Event] = ()) -> None:
        """Add one reading of a held-out split."""
        self._write(lambda tx: changes.add_reading(tx, reading, events), _always)

    def delivered(self, seqs: Sequence[int]) -> None:
        """Mark events of the outbox as delivered."""
        self._write(lambda tx: changes.deliver(tx, seqs))

    def redeliver(self, sweep_id: str) -> int:
        """Put delivered events of a sweep back into the outbox, for a tracker that lost them; count them."""
        return self._write(lambda tx: changes.redeliver(tx, sweep_id))

    def sweep(self, sweep_id: str) -> SweepRecord | None:
        """Return a sweep, or None."""
        return self._one(SWEEPS, select(*SWEEP.columns).where(SWEEP.c.id == sweep_id))

    def sweeps(self) -> list[SweepRecord]:
        """Return every sweep, the oldest first."""
        return self._all(SWEEPS, select(*SWEEP.columns).order_by(SWEEP.c.created_at, SWEEP.c.id))

    def trial(self, key: str) -> TrialRecord:
        """Return a trial.

        Raises:
            KeyError: there is none of that key.
        """
        found = self._one(TRIALS, select(*TRIAL.columns).where(TRIAL.c.key == key))
        if found is None:
            raise KeyError(f"no trial {key!r} in the ledger")
        return found

    def trials(self, sweep_id: str, role: Role | None = None) -> list[TrialRecord]:
        """Return the trials of a sweep by number, of one role or of all."""
        query = select(*TRIAL.columns).where(TRIAL.c.sweep_id == sweep_id)
        query = query.where(TRIAL.c.role == role) if role else query
        return self._all(TRIALS, query.order_by(TRIAL.c.role.desc(), TRIAL.c.number))

    def states(self, sweep_id: str) -> dict[str, int]:
        """Return how many search trials of a sweep are in each state, without reading them."""
        query = (
            select(TRIAL.c.state, func.count())
            .where(TRIAL.c.sweep_id == sweep_id, TRIAL.c.role == "search")
            .group_by(TRIAL.c.state)
        )
        return dict(row._tuple() for row in self._read(query))

    def attempts(self, owner: str) -> list[AttemptRecord]:
        """Return the attempts of a sweep, or of one trial, by trial and number."""
        query = select(*ATTEMPT.columns).where(_owned_by(owner, ATTEMPT.c.trial_key))
        return self._all(ATTEMPTS, query.order_by(ATTEMPT.c.trial_key, ATTEMPT.c.number))

    def reports(self, owner: str) -> list[ReportRecord]:
        """Return the reports of a sweep, or of one trial, by trial and step."""
        query = select(*REPORT.columns).where(_owned_by(owner, REPORT.c.trial_key))
        return self._all(REPORTS, query.order_by(REPORT.c.trial_key, REPORT.c.step))

    def checkpoints(self, owner: str) -> list[CheckpointRecord]:
        """Return the checkpoints of a trial, or of a sweep, the newest of a trial first."""
        query = select(*CHECKPOINT.columns).where(_owned_by(owner, CHECKPOINT.c.trial_key))
        order = (CHECKPOINT.c.trial_key, CHECKPOINT.c.step.desc(), CHECKPOINT.c.kind)
        return self._all(CHECKPOINTS, query.order_by(*order))

    def readings(self, sweep_id: str) -> list[EvaluationRecord]:
        """Return the readings of held-out splits of a sweep, in order of time."""
        query = select(*READING.columns).where(_owned_by(sweep_id, READING.c.trial_key))
        return self._all(READINGS, query.order_by(READING.c.at))

    def pending(self, sweep_id: str, limit: int) -> list[OutboxRow]:
        """Return the oldest events that are not delivered yet, at most `limit`, and flushed to disk."""
        query = select(*OUTBOX.columns).where(OUTBOX.c.sweep_id == sweep_id, ~OUTBOX.c.delivered)
        rows = [opened(OUTBOX, row) for row in self._read(query.order_by(OUTBOX.c.seq).limit(limit))]
        if rows:
            self.flush()
        return [
            OutboxRow(row["seq"], Event(row["kind"], row["run"], row["payload"], row["at_ms"]))
            for row in rows
        ]

    def backlog(self, sweep_id: str) -> int:
        """Return the number of events that are not delivered yet."""
        query = select(func.count()).where(OUTBOX.c.sweep_id == sweep_id, ~OUTBOX.c.delivered)
        return int(self._read(query)[0][0])

    def _one(self, codec: Codec[Record], query: Select[Any]) -> Record | None:
        return next(iter(self._all(codec, query)), None)

    def _all(self, codec: Codec[Record], query: Select[Any]) -> list[Record]:
        return [codec.decode(row) for row in self._read(query)]

    def _read(self, query: Select[Any]) -> Sequence[Any]:
        def attempt() -> Sequence[Any]:
            with self.reading() as connection:
                return connection.execute(query).all()

        return patiently(attempt, self.where)

    def _write(
        self, change: Callable[[Transaction], Result], acted_on: Callable[[Result], bool] = lambda _: False
    ) -> Result:
        """Run a change as one transaction; flush it to disk if the outside world is to act on its result."""

        def attempt() -> Result:
            with self.writing() as connection:
                transaction = Transaction(connection)
                result = change(transaction)
                self._check_fence(connection, transaction.sweep_id)
                number = transaction.close()
                if number is None or transaction.sweep_id is None:
                    connection.commit()
                    return result
                with appending(backup_file(self.address, transaction.sweep_id)) as log:
                    connection.commit()
                    append(log, Entry(number, transaction.changes))
                return result

        result = patiently(attempt, self.where)
        if acted_on(result):
            self.flush()
        return result

    def flush(self) -> None:
        """Let every commit so far outlive a power cut, and not only this process."""
        if self.is_file:
            flush(self.address)

    def fence(self, sweep_id: str, token: int | None) -> None:
        """Refuse changes to a sweep from now on unless `token` is the newest of its lease; None ends that."""
        if token is None:
            self._fences.pop(sweep_id, None)
        else:
            self._fences[sweep_id] = token

    def _check_fence(self, connection: Connection, sweep_id: str | None) -> None:
        token = self._fences.get(sweep_id or "")
        if token is not None and not holds(connection, str(sweep_id), token):
            raise busy(str(sweep_id), None)

    def reading(self) -> Connection:
        """Return a connection that only looks, to be used as a context."""
        return self._engine.connect()

    def writing(self) -> Connection:
        """Return a connection whose transactions take the write lock at once, to be used as a context."""
        return self._engine.connect().execution_options(**{WRITING: True})


def _prepare_folder(file: Path, create: bool) -> None:
    if create:
        file.parent.mkdir(parents=True, exist_ok=True)
    elif not file.exists():
        raise BadInput(
            f"ledger {file}", "must be there", "no such file", "Run a sweep first, or name another."
        )


def _always(_: object) -> bool:
    return True


def _owned_by(owner: str, column: Any) -> Any:
    # A trial's key is its sweep's id and a suffix, so no key of the one kind is one of the other.
    return or_(column == owner, column.in_(select(TRIAL.c.key).where(TRIAL.c.sweep_id == owner)))
