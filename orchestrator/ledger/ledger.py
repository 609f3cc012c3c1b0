"""The ledger: every query, and every change, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, Select, func, or_, select

from orchestrator.errors import BadInput
from orchestrator.ledger import changes
from orchestrator.ledger.backup import Entry, append, appending, backup_file
from orchestrator.ledger.connect import (
    WRITING,
    connect,
    database_file,
    flush,
    is_file,
    parse,
    with_retries,
)
from orchestrator.ledger.keys import trial_key_of
from orchestrator.ledger.lease_backends import busy, holds
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
from orchestrator.ledger.rows import (
    ATTEMPTS,
    CHECKPOINTS,
    EVALUATIONS,
    REPORTS,
    SWEEPS,
    TRIALS,
    Codec,
    Record,
    opened,
)
from orchestrator.ledger.schema import migrate
from orchestrator.ledger.tables import ATTEMPT, CHECKPOINT, EVALUATION, OUTBOX, REPORT, SWEEP, TRIAL
from orchestrator.ledger.transaction import Transaction
from orchestrator.system import System

Result = TypeVar("Result")


class Ledger:
    """The authority on every sweep of one database; safe to share between threads.

    Args:
        address: of the database.
        engine: of the database.
        system: of the process that uses the ledger.

    Attributes:
        system: of the process that uses the ledger.
        where: the address without its password, for messages.
        is_file: whether the database is a SQLite file, with a backup beside it.
    """

    def __init__(self, address: URL, engine: Engine, system: System = System()) -> None:
        self.address = address
        self.where = address.render_as_string(hide_password=True)
        self.is_file = is_file(address)
        self._engine, self.system = engine, system
        self._fences: dict[str, int] = {}

    @classmethod
    def open(cls, url: str, *, create: bool = True, system: System = System()) -> Ledger:
        """Open the ledger at `url`, and upgrade its tables first if an earlier version created them.

        Args:
            url: of a SQLite file or a PostgreSQL database.
            create: whether to create a SQLite file that does not exist.
            system: of the process that uses the ledger.

        Raises:
            BadInput: `url` cannot be a ledger, the file does not exist, or the database does not answer.
            Damaged: the file is no intact database.
        """
        address = parse(url)
        if is_file(address):
            _prepare_folder(database_file(address), create)
        ledger = cls(address, connect(address), system)
        with_retries(lambda: migrate(ledger._engine, address), ledger.where, reconnect_seconds=0.0)
        return ledger

    def __repr__(self) -> str:
        return f"Ledger({self.where})"

    def now(self) -> float:
        """Return seconds since the epoch, by the clock of this machine."""
        return self.system.time()

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def create_sweep(self, record: SweepRecord, events: Sequence[Event] = ()) -> None:
        """Add a sweep, unless it exists."""
        self._write(lambda tx: changes.create_sweep(tx, record, events), _always)

    def set_sweep_state(
        self, sweep_id: str, state: SweepState, reason: str | None = None, events: Sequence[Event] = ()
    ) -> None:
        """Set the state of a sweep, and the reason for it."""
        now = self.now()
        self._write(lambda tx: changes.set_sweep_state(tx, sweep_id, state, reason, now, events), _always)

    def amend_sweep(
        self, sweep_id: str, document: Mapping[str, Any], digest: str, facts: Mapping[str, Any]
    ) -> None:
        """Replace the specification of a sweep, after a change that is allowed to an unfinished one."""
        self._write(lambda tx: changes.amend_sweep(tx, sweep_id, document, digest, facts))

    def add_trial(self, record: TrialRecord, events: Sequence[Event] = ()) -> None:
        """Add a trial, unless it exists."""
        self._write(lambda tx: changes.add_trial(tx, record, events))

    def reopen_trial(self, trial_key: str, events: Sequence[Event] = ()) -> None:
        """Set a FAILED trial WAITING; leave a trial in any other state as it is."""
        self._write(lambda tx: changes.reopen_trial(tx, trial_key, events))

    def start_attempt(self, trial_key: str, events: Sequence[Event] = ()) -> AttemptRecord:
        """Start the next attempt of an unfinished trial; an attempt that is still running becomes LOST.

        Raises:
            ValueError: the trial is finished.
        """
        now = self.now()
        started: list[AttemptRecord] = []

        def start(tx: Transaction) -> AttemptRecord:
            # If the server was lost before it answered, the commit may stand: do not start a second attempt.
            number = started[-1].number if started else None
            started.append(changes.start_attempt(tx, trial_key, number, now, events))
            return started[-1]

        return self._write(start)

    def lose_attempts(self, sweep_id: str) -> int:
        """End the attempts that a dead driver left running; return how many there were.

        Call it under the lease, before a sweep is resumed. Each attempt ends at its last report, so that the
        time without a driver is not charged to the budget.
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
        """Add the first report of a step, and any checkpoints; ignore an attempt that is not the current one.

        Args:
            attempt_id: of the attempt.
            step: that the attempt has reached.
            metrics: at that step; empty for a checkpoint between two reports.
            checkpoints: saved at that step.
            events: put in the outbox by the same commit.
            node: name of the machine that the attempt runs on.

        Returns:
            The checkpoint folders that no row refers to since this commit: safe to delete now, not before.
        """
        report = ReportRecord(trial_key_of(attempt_id), step, attempt_id, metrics, self.now())
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
        now, then = self.now(), trial_state or changes.REISSUED[state]
        return self._write(
            lambda tx: changes.end_attempt(tx, attempt_id, state, cause, then, value, best_step, now, events),
            acted_on=lambda _: then in FINISHED_TRIAL,
        )

    def exploit(
        self, attempt_id: str, segment: Segment, checkpoint: CheckpointRecord, events: Sequence[Event] = ()
    ) -> bool:
        """End an attempt whose trial continues from another trial's checkpoint with other hyperparameters.

        Args:
            attempt_id: of the attempt; nothing changes if it has already ended.
            segment: the part of the trial that starts now.
            checkpoint: the trial's own copy of the donor's checkpoint; it is pinned.
            events: put in the outbox by the same commit.

        Returns:
            Whether this call ended the attempt.
        """
        now = self.now()
        return self._write(
            lambda tx: changes.exploit(tx, attempt_id, segment, checkpoint, now, events), acted_on=bool
        )

    def drop_checkpoint(self, trial_key: str, path: Path) -> None:
        """Delete the rows of a checkpoint whose files turned out to be damaged."""
        self._write(lambda tx: changes.forget_checkpoint(tx, trial_key, str(path)))

    def add_evaluation(self, evaluation: EvaluationRecord, events: Sequence[Event] = ()) -> None:
        """Add an evaluation on a held-out split, unless it exists."""
        self._write(lambda tx: changes.add_evaluation(tx, evaluation, events), _always)

    def delivered(self, seqs: Sequence[int]) -> None:
        """Mark events of the outbox as delivered."""
        self._write(lambda tx: changes.deliver(tx, seqs))

    def redeliver(self, sweep_id: str) -> int:
        """Mark every delivered event of a sweep as not delivered; return how many there were."""
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
            KeyError: the ledger has no trial of that key.
        """
        trial = self._one(TRIALS, select(*TRIAL.columns).where(TRIAL.c.key == key))
        if trial is None:
            raise KeyError(f"no trial {key!r} in the ledger")
        return trial

    def trials(self, sweep_id: str, role: Role | None = None) -> list[TrialRecord]:
        """Return the trials of a sweep in one role, or in all, by number; the search comes first."""
        query = select(*TRIAL.columns).where(TRIAL.c.sweep_id == sweep_id)
        query = query.where(TRIAL.c.role == role) if role else query
        return self._all(TRIALS, query.order_by(TRIAL.c.role.desc(), TRIAL.c.number))

    def states(self, sweep_id: str) -> dict[str, int]:
        """Return the number of search trials of a sweep by state, without reading the trials."""
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

    def best_metrics(self, sweep_id: str) -> dict[str, Mapping[str, float]]:
        """Return the metrics that each trial of a sweep reported at its best step, by trial key."""
        at_best = (REPORT.c.trial_key == TRIAL.c.key) & (REPORT.c.step == TRIAL.c.best_step)
        query = select(*REPORT.columns).join(TRIAL, at_best).where(TRIAL.c.sweep_id == sweep_id)
        return {row.trial_key: row.metrics for row in self._all(REPORTS, query)}

    def checkpoints(self, owner: str) -> list[CheckpointRecord]:
        """Return the checkpoints of a trial, or of a sweep, the newest of a trial first."""
        query = select(*CHECKPOINT.columns).where(_owned_by(owner, CHECKPOINT.c.trial_key))
        order = (CHECKPOINT.c.trial_key, CHECKPOINT.c.step.desc(), CHECKPOINT.c.kind)
        return self._all(CHECKPOINTS, query.order_by(*order))

    def evaluations(self, sweep_id: str) -> list[EvaluationRecord]:
        """Return the evaluations of a sweep on held-out splits, in order of time."""
        query = select(*EVALUATION.columns).where(_owned_by(sweep_id, EVALUATION.c.trial_key))
        return self._all(EVALUATIONS, query.order_by(EVALUATION.c.at))

    def pending(self, sweep_id: str, limit: int) -> list[OutboxRow]:
        """Return the oldest events that are not delivered yet, at most `limit`; flush them to disk first."""
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
            with self.reader() as connection:
                return connection.execute(query).all()

        return self.retried(attempt)

    def _write(
        self, change: Callable[[Transaction], Result], acted_on: Callable[[Result], bool] = lambda _: False
    ) -> Result:
        """Run a change as one transaction; flush it to disk if something outside will act on its result."""

        def attempt() -> Result:
            with self.writer() as connection:
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

        result = self.retried(attempt)
        if acted_on(result):
            self.flush()
        return result

    def retried(self, attempt: Callable[[], Result]) -> Result:
        """Run a whole transaction, and run it again within bounds if it meets a lock or a lost server."""
        return with_retries(attempt, self.where, system=self.system)

    def flush(self) -> None:
        """Make every commit so far survive a power failure, and not only the end of this process."""
        if self.is_file:
            flush(self.address)

    def fence(self, sweep_id: str, token: int | None) -> None:
        """Refuse changes to a sweep unless `token` is the newest of its lease; None lifts the fence."""
        if token is None:
            self._fences.pop(sweep_id, None)
        else:
            self._fences[sweep_id] = token

    def _check_fence(self, connection: Connection, sweep_id: str | None) -> None:
        token = self._fences.get(sweep_id or "")
        if token is not None and not holds(connection, str(sweep_id), token):
            raise busy(str(sweep_id), None)

    def reader(self) -> Connection:
        """Return a connection for reading, to be used as a context manager."""
        return self._engine.connect()

    def writer(self) -> Connection:
        """Return a connection for writing, to be used as a context manager.

        Its transactions take the write lock when they begin.
        """
        return self._engine.connect().execution_options(**{WRITING: True})


def _prepare_folder(file: Path, create: bool) -> None:
    if create:
        file.parent.mkdir(parents=True, exist_ok=True)
    elif not file.exists():
        raise BadInput(f"ledger {file}", "must exist", "no such file", "Run a sweep first, or name another.")


def _always(_: object) -> bool:
    return True


def _owned_by(owner: str, column: Any) -> Any:
    # A trial's key is its sweep's id with a suffix, so no trial's key equals a sweep's id.
    return or_(column == owner, column.in_(select(TRIAL.c.key).where(TRIAL.c.sweep_id == owner)))
