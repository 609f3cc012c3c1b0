"""The ledger: connection, transactions and queries. `SweepWriter` makes every change to a sweep."""

from __future__ import annotations

import fcntl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy import (
    URL,
    BindParameter,
    Connection,
    Engine,
    Executable,
    Select,
    bindparam,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.exc import DBAPIError

from orchestrator.errors import BadInput
from orchestrator.ledger import backup
from orchestrator.ledger.backup import backup_file
from orchestrator.ledger.connect import (
    RECONNECT_SECONDS,
    WRITING,
    DatabaseOutages,
    connect,
    database_file,
    flush,
    is_committed,
    is_file,
    parse,
    transaction_number,
    with_retries,
)
from orchestrator.ledger.holder import Token, busy
from orchestrator.ledger.lease_backends import is_newest, newest, require_newest
from orchestrator.ledger.prepared import (
    Answer,
    Stale,
    Values,
    commit,
    has_pipelines,
    pipelined,
    read,
)
from orchestrator.ledger.rows import (
    ATTEMPTS,
    CHECKPOINTS,
    EVALUATIONS,
    MLFLOW_RUNS,
    REPORTS,
    SWEEPS,
    TRIALS,
    Codec,
    Record,
    checked_batches,
    curve_points,
    opened,
)
from orchestrator.ledger.schema import (
    RECOVERY_LOCK,
    is_ledger,
    ledger_id,
    lock_folder,
    migrate,
    refused_without_space,
)
from orchestrator.ledger.sweeps.records import (
    CANDIDATE,
    DESCRIPTION,
    UNFINISHED_TRIAL,
    AttemptOutline,
    AttemptRecord,
    CheckpointRecord,
    CurvePoint,
    EvaluationRecord,
    Event,
    OutboxRow,
    Pending,
    ReportRecord,
    Role,
    SweepOutline,
    SweepRecord,
    TrialOutline,
    TrialRecord,
    TrialState,
    is_confirmation,
    trial_label,
)
from orchestrator.ledger.tables import (
    ATTEMPT,
    CHECKPOINT,
    DELETION,
    EVALUATION,
    MLFLOW_RUN,
    NOTE,
    OUTBOX,
    REPORT,
    SWEEP,
    TRIAL,
    UNDELIVERED_REPORT,
)
from orchestrator.ledger.transaction import Transaction
from orchestrator.system import System
from trainables.durable import flush_folder, make_folder

Result = TypeVar("Result")


class Ledger:
    """The authority on every sweep of one database; safe to share between threads.

    >>> ledger = Ledger.open("sqlite:///mlruns/sweeps.db")  # doctest: +SKIP
    >>> [trial.state for trial in ledger.trials("listops-1")]  # doctest: +SKIP
    ['COMPLETE', 'RUNNING']

    Args:
        address: Address of the database.
        engine: Engine of the database.
        system: System of the process that uses the ledger.
        reconnect_seconds: Longest outage of a server before a query fails.
        notify: Function that receives a line when the server does not answer, and when it answers again.

    Attributes:
        system: System of the process that uses the ledger.
        id: Random ID, kept when the ledger is rebuilt from its backup.
        where: Address without its password, for messages.
        is_file: Whether the database is a SQLite file, with a backup beside it.
        outages: Outages of the database that have kept this process waiting.
    """

    id: str

    def __init__(
        self,
        address: URL,
        engine: Engine,
        system: System = System(),
        *,
        reconnect_seconds: float = RECONNECT_SECONDS,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.address = address
        self.where = address.render_as_string(hide_password=True)
        self.is_file = is_file(address)
        self._engine, self.system = engine, system
        self._writing_engine = engine.execution_options(**{WRITING: True})  # shares the connections
        self._reconnect_seconds, self._notify = reconnect_seconds, notify
        self.outages = DatabaseOutages()
        self._logs: dict[str, Path] = {}  # backups that this process has written to, by sweep

    @classmethod
    def open(
        cls,
        url: str,
        *,
        create: bool = True,
        system: System = System(),
        reconnect_seconds: float = RECONNECT_SECONDS,
        notify: Callable[[str], None] = lambda line: None,
    ) -> Ledger:
        """Open the ledger at `url`; create or upgrade its tables first if necessary.

        Args:
            url: URL of a SQLite file or a PostgreSQL database.
            create: Whether to create a SQLite file that does not exist.
            system: System of the process that uses the ledger.
            reconnect_seconds: Longest outage of a server, once it is open, before a query fails.
            notify: Function that receives a line when the server does not answer, and when it answers again.

        Raises:
            BadInput: `url` cannot be a ledger, the file does not exist, or the database does not answer.
            Damaged: The file is not an intact database.
        """
        address = parse(url)
        if is_file(address):
            _prepare_folder(database_file(address), create)
        ledger = cls(address, connect(address), system, reconnect_seconds=reconnect_seconds, notify=notify)
        try:
            with_retries(
                lambda: migrate(ledger._engine, address), ledger.where, reconnect_seconds=0.0, system=system
            )
            ledger.id = ledger.retried(lambda: ledger_id(ledger._engine))
        except BaseException:
            ledger.close()
            raise
        return ledger

    def __repr__(self) -> str:
        return f"Ledger({self.where})"

    def now(self) -> float:
        """Return the time of this machine in seconds since the epoch."""
        return self.system.time()

    def reconnect(self) -> None:
        """Close every idle connection, so that the next ones open the current database file."""
        self._engine.dispose()

    def opens_again(self) -> bool:
        """Return True if `open` would still return this ledger; it is then as newly opened.

        It runs one query, and keeps the compiled queries and the connection.
        """
        self._logs.clear()
        try:
            return is_ledger(self._engine, self.address, self.id)
        except DBAPIError:
            return False  # `open` refuses it with the reason

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def sweep(self, sweep_id: str) -> SweepRecord | None:
        """Return a sweep, or None."""
        return self._one(SWEEPS, _ONE_SWEEP, id=sweep_id)

    def sweeps(self) -> list[SweepRecord]:
        """Return every sweep, the oldest first."""
        return self._all(SWEEPS, _SWEEPS)

    def trial(self, key: str) -> TrialRecord:
        """Return a trial.

        Raises:
            KeyError: The ledger has no trial with this key.
        """
        trial = self._one(TRIALS, _ONE_TRIAL, key=key)
        if trial is None:
            raise KeyError(f"no trial {key!r} in the ledger")
        return trial

    def trials(self, sweep_id: str, role: Role | None = None) -> list[TrialRecord]:
        """Return the trials of a sweep by number, in one role or with the search first."""
        if role is None:
            return self._all(TRIALS, _TRIALS, sweep_id=sweep_id)
        return self._all(TRIALS, _TRIALS_OF_ROLE, sweep_id=sweep_id, role=role)

    def trial_outlines(self, sweep_id: str) -> list[TrialOutline]:
        """Return the outlines of the trials of a sweep, in the order of `trials`.

        Like a count, an outline is not compared with the digest of its row: a view reads the trials that it
        shows one by one as well.
        """
        return list(map(TrialOutline._make, self._read(_TRIAL_OUTLINES, sweep_id=sweep_id)))

    def attempt_outlines(self, sweep_id: str) -> list[AttemptOutline]:
        """Return the outlines of the attempts of a sweep, in any order; see `trial_outlines`."""
        return list(map(AttemptOutline._make, self._read(_ATTEMPT_OUTLINES, sweep_id=sweep_id)))

    def outlines(self, sweep_ids: Sequence[str]) -> dict[str, SweepOutline]:
        """Return the outlines of several sweeps by ID, in five queries; see `trial_outlines`."""
        trials: dict[str, list[TrialOutline]] = {sweep_id: [] for sweep_id in sweep_ids}
        attempts: dict[str, list[AttemptOutline]] = {sweep_id: [] for sweep_id in sweep_ids}
        backlog: Counter[str] = Counter()

        def read(connection: Connection) -> list[Sequence[Sequence[Any]]]:
            queries, values = (_TRIALS_OF_SWEEPS, _ATTEMPTS_OF_SWEEPS, *_BACKLOGS), {"sweep_ids": sweep_ids}
            return [connection.execute(query, values).all() for query in queries]

        of_trials, of_attempts, *waiting = self.query(read)
        for row in of_trials:
            trials[row[0]].append(TrialOutline._make(row[1:]))
        for row in of_attempts:
            attempts[row[0]].append(AttemptOutline._make(row[1:]))
        for sweep_id, count in chain.from_iterable(waiting):
            backlog[sweep_id] += count
        return {
            sweep_id: SweepOutline(trials[sweep_id], attempts[sweep_id], backlog[sweep_id])
            for sweep_id in sweep_ids
        }

    def states(self, sweep_id: str) -> dict[str, int]:
        """Return the number of search trials of a sweep by state, without reading the trials."""
        return dict(cast(list[tuple[str, int]], self._read(_STATES, sweep_id=sweep_id)))

    def trials_in_state(self, sweep_id: str, state: TrialState) -> list[TrialRecord]:
        """Return the trials of a sweep in one state, by number."""
        return self._all(TRIALS, _TRIALS_IN_STATE, sweep_id=sweep_id, state=state)

    def best_value(self, sweep_id: str, *, maximize: bool) -> TrialRecord | None:
        """Return the complete search trial with the best value, ignoring constraints, or None."""
        query = _LARGEST_VALUE if maximize else _SMALLEST_VALUE
        return self._one(TRIALS, query, sweep_id=sweep_id)

    def failures(self, sweep_id: str) -> dict[str, int]:
        """Return the number of failed search trials of a sweep by cause."""
        return {str(cause): count for cause, count in self._read(_FAILURES, sweep_id=sweep_id)}

    def running_by_node(self, sweep_id: str) -> dict[str | None, int]:
        """Return the number of running trials of a sweep by node, which is None before a first report."""
        return dict(cast(list[tuple[str | None, int]], self._read(_RUNNING_BY_NODE, sweep_id=sweep_id)))

    def recent_attempts(self, sweep_id: str, limit: int) -> list[AttemptRecord]:
        """Return the attempts of a sweep that started or ended last, the newest first."""
        return self._all(ATTEMPTS, _RECENT_ATTEMPTS, sweep_id=sweep_id, limit=limit)

    def attempts(self, sweep_id: str) -> list[AttemptRecord]:
        """Return the attempts of a sweep by trial and number."""
        return self._all(ATTEMPTS, _ATTEMPTS, sweep_id=sweep_id)

    def trial_attempts(self, trial_key: str) -> list[AttemptRecord]:
        """Return the attempts of a trial by number."""
        return self._all(ATTEMPTS, _TRIAL_ATTEMPTS, trial_key=trial_key)

    def last_attempt(self, trial_key: str) -> AttemptRecord | None:
        """Return the newest attempt of a trial, or None."""
        return self._one(ATTEMPTS, _LAST_ATTEMPT, trial_key=trial_key)

    def reports(self, sweep_id: str) -> list[ReportRecord]:
        """Return the reports of a sweep by trial and step."""
        return self._all(REPORTS, _REPORTS, sweep_id=sweep_id)

    def trial_reports(self, trial_key: str) -> list[ReportRecord]:
        """Return the reports of a trial by step."""
        return self._all(REPORTS, _TRIAL_REPORTS, trial_key=trial_key)

    def curves(self, sweep_id: str, metrics: Sequence[str]) -> list[CurvePoint]:
        """Return the named metrics of all reports of a sweep, by trial and step."""
        batches = checked_batches(REPORT, self._read(_REPORTS, sweep_id=sweep_id))
        return [point for rows in batches for point in curve_points(rows, metrics)]

    def recent_reports(self, trial_key: str, limit: int) -> list[ReportRecord]:
        """Return at most `limit` of the last reports of a trial, by step."""
        newest_first = self._all(REPORTS, _RECENT_REPORTS, trial_key=trial_key, limit=limit)
        return newest_first[::-1]

    def last_reports(self, trial_keys: Sequence[str]) -> dict[str, ReportRecord]:
        """Return the last report of each of some trials that has one, by trial key, in one query."""
        rows = self.query(lambda connection: list(connection.execute(_LAST_REPORTS, {"keys": trial_keys})))
        return {report.trial_key: report for report in REPORTS.decoded(rows)}

    def reports_after(self, sweep_id: str, last: ReportRecord | None, limit: int) -> list[ReportRecord]:
        """Return at most `limit` reports of a sweep in the order of their times.

        Args:
            sweep_id: ID of the sweep.
            last: Report after which to begin; None for the first one.
            limit: Maximum number of reports.
        """
        start = ("", -1, 0.0) if last is None else (last.trial_key, last.step, last.at)
        values = dict(zip(("trial_key", "step", "at"), start, strict=True))
        return self._all(REPORTS, _REPORTS_AFTER, sweep_id=sweep_id, limit=limit, **values)

    def deletions(self, sweep_id: str, limit: int) -> list[str]:
        """Return the targets to be deleted outside the ledger: the least tried first, then the oldest."""
        return [target for (target,) in self._read(_DELETIONS, sweep_id=sweep_id, limit=limit)]

    def reporters(self, trial_key: str) -> frozenset[str]:
        """Return the IDs of the attempts of a trial that were the first to report some step."""
        return frozenset(attempt_id for (attempt_id,) in self._read(_REPORTERS, trial_key=trial_key))

    def last_report_at(self, sweep_id: str) -> float:
        """Return the time of the latest report of a sweep; 0 without reports."""
        [(latest,)] = self._read(_LAST_REPORT_AT, sweep_id=sweep_id)
        return float(latest or 0.0)

    def best_metrics(self, sweep_id: str) -> dict[str, Mapping[str, float]]:
        """Return the metrics that each trial of a sweep reported at its best step, by trial key."""
        return {row.trial_key: row.metrics for row in self._all(REPORTS, _BEST_REPORTS, sweep_id=sweep_id)}

    def checkpoints(self, sweep_id: str) -> list[CheckpointRecord]:
        """Return the checkpoints of a sweep by trial, the newest of a trial first."""
        return self._checkpoints(_CHECKPOINTS, _REPORTS_OF_CHECKPOINTS, sweep_id=sweep_id)

    def trial_checkpoints(self, trial_key: str) -> list[CheckpointRecord]:
        """Return the checkpoints of a trial, the newest first."""
        return self._checkpoints(_TRIAL_CHECKPOINTS, _REPORTS_OF_TRIAL_CHECKPOINTS, trial_key=trial_key)

    def best_of_unfinished(self, sweep_id: str) -> list[CheckpointRecord]:
        """Return the newest checkpoint of kind `best` of each unfinished search trial that has one."""
        newest_first = self._checkpoints(_BEST_OF_UNFINISHED, _REPORTS_OF_UNFINISHED, sweep_id=sweep_id)
        return list({row.trial_key: row for row in reversed(newest_first)}.values())

    def evaluations(self, sweep_id: str) -> list[EvaluationRecord]:
        """Return the evaluations of a sweep on held-out splits, in order of time."""
        return self._all(EVALUATIONS, _EVALUATIONS, sweep_id=sweep_id)

    def mlflow_runs(self, sweep_id: str) -> dict[str, str]:
        """Return MLflow's IDs of the runs that get the events of a sweep, by sweep ID and trial key."""
        return {row.run: row.run_id for row in self._all(MLFLOW_RUNS, _MLFLOW_RUNS, sweep_id=sweep_id)}

    def mlflow_run(self, sweep_id: str, run: str) -> str | None:
        """Return MLflow's ID of the run that gets the events of a sweep or a trial, or None."""
        row = self._one(MLFLOW_RUNS, _ONE_MLFLOW_RUN, sweep_id=sweep_id, run=run)
        return None if row is None else row.run_id

    def pending(
        self, sweep_id: str, limit: int, reports: int | None = None, after: str | None = None
    ) -> Pending:
        """Flush the ledger, and return what MLflow lacks, or a first part of it.

        Args:
            sweep_id: ID of the sweep.
            limit: Maximum number of events. If there are more, no report is returned: they may start its run.
            reports: Maximum number of reports; `limit` if None.
            after: Key of the trial after which the reports begin, in their order; None for all trials.
        """
        # The reports are read first: whatever starts their runs is then among the events.
        most = limit if reports is None else reports
        place = {"role": "", "number": 0}
        if after is not None:
            role = "confirmation" if is_confirmation(after) else "search"
            place = {"role": role, "number": int(trial_label(after).removeprefix("c"))}
        reported = self._all(REPORTS, _PENDING_REPORTS, sweep_id=sweep_id, limit=most, **place)
        rows = [opened(OUTBOX, row) for row in self._read(_PENDING, sweep_id=sweep_id, limit=limit)]
        if len(rows) == limit:
            reported = []
        if rows or reported:
            self.flush()
        events = [
            OutboxRow(row["seq"], Event(row["kind"], row["run"], row["payload"], row["at_ms"]))
            for row in rows
        ]
        return Pending(events, reported)

    def description(self, sweep_id: str) -> str:
        """Return the description that the newest event gives the run of a sweep, or ''."""
        found = ""
        for row in self._read(_TAGS_OF_RUN, sweep_id=sweep_id):
            payload = opened(OUTBOX, row)["payload"]
            found = payload["tags"].get(DESCRIPTION, found)
        return found

    def registered_models(self, sweep_id: str) -> list[str]:
        """Return the names of the registered models that a sweep has added a version to, by the outbox."""
        rows = [opened(OUTBOX, row) for row in self._read(_MODELS, sweep_id=sweep_id)]
        return sorted({row["payload"]["name"] for row in rows})

    def mlflow_batch(self, sweep_id: str) -> int:
        """Return the number of the newest batch of a sweep that MLflow has; 0 without one."""
        row = self._one(MLFLOW_RUNS, _ONE_MLFLOW_RUN, sweep_id=sweep_id, run=sweep_id)
        return 0 if row is None else int(row.position)

    def backlog(self, sweep_id: str) -> int:
        """Return the number of undelivered reports, events and notes."""
        [(count,)] = self._read(_BACKLOG, sweep_id=sweep_id)
        return int(count)

    def _checkpoints(self, query: Select[Any], reports: Select[Any], **values: Any) -> list[CheckpointRecord]:
        """Return checkpoints, those whose rows have no metrics with the ones of the report of their step."""
        rows = self._all(CHECKPOINTS, query, **values)
        if all(row.metrics for row in rows):
            return rows
        reported = {(row.trial_key, row.step): row.metrics for row in self._all(REPORTS, reports, **values)}
        return [
            row if row.metrics else replace(row, metrics=reported.get((row.trial_key, row.step), {}))
            for row in rows
        ]

    def _one(self, codec: Codec[Record], query: Select[Any], **values: Any) -> Record | None:
        return next(iter(self._all(codec, query, **values)), None)

    def _all(self, codec: Codec[Record], query: Select[Any], **values: Any) -> list[Record]:
        return list(codec.decoded(self._read(query, **values)))

    def _read(self, query: Select[Any], **values: Any) -> list[Sequence[Any]]:
        return self.retried(lambda: self.read(query, values))

    def read(self, query: Executable, values: Values) -> list[Sequence[Any]]:
        """Run a query once, in its own transaction.

        Raises:
            DBAPIError: The database refuses the query, or is lost.
        """
        return read(self._engine, query, values)

    def write(
        self,
        change: Callable[[Transaction], Result],
        token: Token,
        acted_on: Callable[[Any], bool] = lambda _: False,
        *,
        at_once: bool = False,
    ) -> Result:
        """Run a change of a sweep as one transaction.

        Args:
            change: Change; it may run several times.
            token: Token of the sweep, which must be the newest one when the change is committed.
            acted_on: True for a result on which something outside the ledger acts, so that it is flushed to
                disk.
            at_once: Whether to send the statements and the commit to a server together. The change must run
                all of them by `prepared.execute` or `prepared.send`.

        Raises:
            Busy: The token is not the newest.
        """
        now = self.now()

        def attempt() -> Result:
            with suppress(Stale):  # the next try reads the rows as they are now, or finds another token
                return once_together() if at_once and has_pipelines(self._engine) else once()
            while True:
                with suppress(Stale):
                    return once()

        def once() -> Result:
            with self.writer() as connection:
                transaction = Transaction(connection, now)
                with pipelined(connection) if at_once else nullcontext():
                    result = changed(transaction)
                    asked = newest(connection, token.sweep_id)
                _check(token, asked)
                transaction.confirm()
                number = transaction.close()
                if number is None or transaction.sweep_id is None:
                    connection.commit()
                    return result
                with backup.locked(self._log_of(transaction.sweep_id)) as log:
                    connection.commit()
                    log.append(backup.Entry(number, transaction.changes))
                self._note(transaction.sweep_id)
                return result

        def once_together() -> Result:
            """Run the change in one round trip: the server checks what `once` does, before it commits."""
            with self.writer() as connection:
                with pipelined(connection):
                    result = changed(Transaction(connection, now, on_server=True))
                    require_newest(connection, token)
                    commit(connection)
                connection.commit()  # ends SQLAlchemy's transaction; the server's has ended
                return result

        def changed(transaction: Transaction) -> Result:
            try:
                result = change(transaction)
            except ValueError:
                # It may be impossible because the sweep has another driver, whose rows it has read.
                _check(token, newest(transaction.connection, token.sweep_id))
                raise
            assert transaction.sweep_id in (None, token.sweep_id), "a writer changes its own sweep's rows"
            return result

        result = self.retried(attempt)
        if acted_on(result):
            self.flush()
        return result

    def _log_of(self, sweep_id: str) -> Path:
        return self._logs.get(sweep_id) or backup_file(self.address, sweep_id)

    def _note(self, sweep_id: str) -> None:
        """Remember a log that must be flushed with the database; make its name durable the first time."""
        if sweep_id not in self._logs:
            log = self._log_of(sweep_id)
            flush_folder(log.parent)
            self._logs[sweep_id] = log

    def retried(self, attempt: Callable[[], Result]) -> Result:
        """Run a transaction, and retry it within bounds after a lock or the loss of the server."""
        began = self.system.monotonic()
        result = with_retries(
            attempt,
            self.where,
            reconnect_seconds=self._reconnect_seconds,
            system=self.system,
            notify=self._notify,
        )
        self.outages.add(began, self.system.monotonic())
        return result

    def query(self, read: Callable[[Connection], Result]) -> Result:
        """Run queries in one transaction, and retry it within bounds."""

        def attempt() -> Result:
            with self.reader() as connection, connection.begin():
                return read(connection)

        return self.retried(attempt)

    def transact(
        self,
        write: Callable[[Connection], Result],
        commit: Callable[[Connection, Result], None] = lambda connection, _: connection.commit(),
    ) -> Result:
        """Run a change without a lease in one transaction, and retry it within bounds until it is made once.

        A server that is lost at the commit may have made the change, although it has not acknowledged it. It
        is asked before the change is tried again, because many changes differ when they are made twice: a
        row would be added again, and what a user asks for would no longer be possible.

        Args:
            write: The change; only the effects of one call are committed.
            commit: Function that commits the result of `write`.
        """
        tried: tuple[str, Result] | None = None

        def attempt() -> Result:
            nonlocal tried
            with self.writer() as connection:
                if tried is not None and is_committed(connection, tried[0]):
                    return tried[1]
                result = write(connection)
                tried = None if self.is_file else (transaction_number(connection), result)
                commit(connection, result)
                return result

        with self.in_place():
            return self.retried(attempt)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Hold a shared lock that keeps `recover` from replacing a SQLite file.

        A change without a lease holds it from its transaction until the backup has its rows: rows in a
        replaced file, but not in the backup, would be lost.

        Raises:
            NoSpace: The disk is full, and the file of the lock does not exist yet.
        """
        if not self.is_file:
            yield
            return
        path = lock_folder(self.address) / RECOVERY_LOCK
        with refused_without_space(path):
            make_folder(path.parent)
            shared = path.open("a")
        with shared:
            fcntl.flock(shared, fcntl.LOCK_SH)
            yield

    def flush(self) -> None:
        """Make every commit so far survive a power failure, not only the end of this process."""
        if not self.is_file:
            return
        flush(self.address)
        for log in tuple(self._logs.values()):
            backup.flush(log)

    def reader(self) -> Connection:
        """Return a connection for reading, a context manager."""
        return self._engine.connect()

    def writer(self) -> Connection:
        """Return a connection whose transactions take the write lock when they begin, a context manager."""
        return self._writing_engine.connect()


def _check(token: Token, number: Answer) -> None:
    if not is_newest(token, number):
        raise busy(token.sweep_id, None)


def _prepare_folder(file: Path, create: bool) -> None:
    if create:
        make_folder(file.parent)
    elif not file.exists():
        raise BadInput(f"ledger {file}", "does not exist", "", "Run a sweep first, or name another.")


# The queries are built once: building one costs more than running it.
_OF_SWEEP: BindParameter[str] = bindparam("sweep_id")
_OF_TRIAL: BindParameter[str] = bindparam("trial_key")


def _of_its_trials(column: Any) -> Any:
    # By the rows of its trials and not by its id, which may be the key of another sweep's trial: the second
    # sweep of a file is `x-2`, as is trial 2 of the first one.
    return column.in_(select(TRIAL.c.key).where(TRIAL.c.sweep_id == _OF_SWEEP))


_SWEEPS = select(*SWEEP.columns).order_by(SWEEP.c.created_at, SWEEP.c.id)
_ONE_SWEEP = select(*SWEEP.columns).where(SWEEP.c.id == bindparam("id"))
_ONE_TRIAL = select(*TRIAL.columns).where(TRIAL.c.key == bindparam("key"))
_TRIALS = (
    select(*TRIAL.columns).where(TRIAL.c.sweep_id == _OF_SWEEP).order_by(TRIAL.c.role.desc(), TRIAL.c.number)
)
_OUTLINED_TRIAL = [TRIAL.c[name] for name in TrialOutline._fields]
_TRIAL_OUTLINES = _TRIALS.with_only_columns(*_OUTLINED_TRIAL)
_IN_SWEEPS = TRIAL.c.sweep_id.in_(bindparam("sweep_ids", expanding=True))
_TRIALS_OF_SWEEPS = (
    select(TRIAL.c.sweep_id, *_OUTLINED_TRIAL).where(_IN_SWEEPS).order_by(TRIAL.c.role.desc(), TRIAL.c.number)
)
_TRIALS_OF_ROLE = _TRIALS.where(TRIAL.c.role == bindparam("role"))
_TRIALS_IN_STATE = _TRIALS.where(TRIAL.c.state == bindparam("state"))
_CANDIDATES = select(*TRIAL.columns).where(
    TRIAL.c.sweep_id == _OF_SWEEP,
    TRIAL.c.role == "search",
    or_(*(TRIAL.c.state == state for state in sorted(CANDIDATE))),
    TRIAL.c.value.is_not(None),
)
_LARGEST_VALUE = _CANDIDATES.order_by(TRIAL.c.value.desc(), TRIAL.c.number).limit(1)
_SMALLEST_VALUE = _CANDIDATES.order_by(TRIAL.c.value, TRIAL.c.number).limit(1)
_FAILURES = (
    select(TRIAL.c.cause, func.count())
    .where(TRIAL.c.sweep_id == _OF_SWEEP, TRIAL.c.role == "search", TRIAL.c.state == "FAILED")
    .group_by(TRIAL.c.cause)
)
_STATES = (
    select(TRIAL.c.state, func.count())
    .where(TRIAL.c.sweep_id == _OF_SWEEP, TRIAL.c.role == "search")
    .group_by(TRIAL.c.state)
)
_ATTEMPTS = (
    select(*ATTEMPT.columns)
    .where(_of_its_trials(ATTEMPT.c.trial_key))
    .order_by(ATTEMPT.c.trial_key, ATTEMPT.c.number)
)
_OUTLINED_ATTEMPT = [ATTEMPT.c[name] for name in AttemptOutline._fields]
_ATTEMPT_OUTLINES = select(*_OUTLINED_ATTEMPT).where(_of_its_trials(ATTEMPT.c.trial_key))
_ATTEMPTS_OF_SWEEPS = (
    select(TRIAL.c.sweep_id, *_OUTLINED_ATTEMPT)
    .join(TRIAL, TRIAL.c.key == ATTEMPT.c.trial_key)
    .where(_IN_SWEEPS)
)
_TRIAL_ATTEMPTS = select(*ATTEMPT.columns).where(ATTEMPT.c.trial_key == _OF_TRIAL).order_by(ATTEMPT.c.number)
_LAST_ATTEMPT = (
    select(*ATTEMPT.columns)
    .where(ATTEMPT.c.trial_key == _OF_TRIAL)
    .order_by(ATTEMPT.c.number.desc())
    .limit(1)
)
_RUNNING_BY_NODE = (
    select(ATTEMPT.c.node, func.count())
    .join(TRIAL, TRIAL.c.key == ATTEMPT.c.trial_key)
    .where(TRIAL.c.sweep_id == _OF_SWEEP, TRIAL.c.state == "RUNNING", ATTEMPT.c.state == "RUNNING")
    .group_by(ATTEMPT.c.node)
)
_LAST_CHANGE = func.coalesce(ATTEMPT.c.ended_at, ATTEMPT.c.started_at)
_RECENT_ATTEMPTS = (
    select(*ATTEMPT.columns)
    .join(TRIAL, TRIAL.c.key == ATTEMPT.c.trial_key)
    .where(TRIAL.c.sweep_id == _OF_SWEEP)
    .order_by(_LAST_CHANGE.desc(), ATTEMPT.c.id)
    .limit(bindparam("limit"))
)
_REPORTS = (
    select(*REPORT.columns)
    .where(_of_its_trials(REPORT.c.trial_key))
    .order_by(REPORT.c.trial_key, REPORT.c.step)
)
_TRIAL_REPORTS = select(*REPORT.columns).where(REPORT.c.trial_key == _OF_TRIAL).order_by(REPORT.c.step)
_RECENT_REPORTS = (
    select(*REPORT.columns)
    .where(REPORT.c.trial_key == _OF_TRIAL)
    .order_by(REPORT.c.step.desc())
    .limit(bindparam("limit"))
)
_ANY_REPORT = REPORT.alias()
_LAST_REPORTS = select(*REPORT.columns).where(
    REPORT.c.trial_key.in_(bindparam("keys", expanding=True)),
    REPORT.c.step
    == select(func.max(_ANY_REPORT.c.step))
    .where(_ANY_REPORT.c.trial_key == REPORT.c.trial_key)
    .scalar_subquery(),
)
_REPORTS_AFTER = (
    select(*REPORT.columns)
    .join(TRIAL, TRIAL.c.key == REPORT.c.trial_key)
    .where(
        TRIAL.c.sweep_id == _OF_SWEEP,
        tuple_(REPORT.c.at, REPORT.c.trial_key, REPORT.c.step)
        > tuple_(bindparam("at"), bindparam("trial_key"), bindparam("step")),
    )
    .order_by(REPORT.c.at, REPORT.c.trial_key, REPORT.c.step)
    .limit(bindparam("limit"))
)
_REPORTERS = select(REPORT.c.attempt_id).where(REPORT.c.trial_key == _OF_TRIAL).distinct()
_LAST_REPORT_AT = select(func.max(TRIAL.c.reported_at)).where(TRIAL.c.sweep_id == _OF_SWEEP)
_BEST_REPORTS = (
    select(*REPORT.columns)
    .join(TRIAL, (REPORT.c.trial_key == TRIAL.c.key) & (REPORT.c.step == TRIAL.c.best_step))
    .where(TRIAL.c.sweep_id == _OF_SWEEP)
)
_CHECKPOINTS = (
    select(*CHECKPOINT.columns)
    .where(_of_its_trials(CHECKPOINT.c.trial_key))
    .order_by(CHECKPOINT.c.trial_key, CHECKPOINT.c.step.desc(), CHECKPOINT.c.kind)
)
_TRIAL_CHECKPOINTS = (
    select(*CHECKPOINT.columns)
    .where(CHECKPOINT.c.trial_key == _OF_TRIAL)
    .order_by(CHECKPOINT.c.step.desc(), CHECKPOINT.c.kind)
)
_BEST_OF_UNFINISHED = (
    select(*CHECKPOINT.columns)
    .join(TRIAL, TRIAL.c.key == CHECKPOINT.c.trial_key)
    .where(
        TRIAL.c.sweep_id == _OF_SWEEP,
        TRIAL.c.role == "search",
        or_(*(TRIAL.c.state == state for state in sorted(UNFINISHED_TRIAL))),
        CHECKPOINT.c.kind == "best",
    )
    .order_by(CHECKPOINT.c.trial_key, CHECKPOINT.c.step.desc())
)


def _reports_at(checkpoints: Select[Any]) -> Select[Any]:
    """Return the query for the reports of the steps of some checkpoints."""
    steps = checkpoints.with_only_columns(CHECKPOINT.c.trial_key, CHECKPOINT.c.step).order_by(None)
    return select(*REPORT.columns).where(tuple_(REPORT.c.trial_key, REPORT.c.step).in_(steps))


_REPORTS_OF_CHECKPOINTS = _reports_at(_CHECKPOINTS)
_REPORTS_OF_TRIAL_CHECKPOINTS = _reports_at(_TRIAL_CHECKPOINTS)
_REPORTS_OF_UNFINISHED = _reports_at(_BEST_OF_UNFINISHED)
_EVALUATIONS = (
    select(*EVALUATION.columns).where(_of_its_trials(EVALUATION.c.trial_key)).order_by(EVALUATION.c.at)
)
_MLFLOW_RUNS = select(*MLFLOW_RUN.columns).where(MLFLOW_RUN.c.sweep_id == _OF_SWEEP)
_ONE_MLFLOW_RUN = _MLFLOW_RUNS.where(MLFLOW_RUN.c.run == bindparam("run"))
_DELETIONS = (
    select(DELETION.c.target)
    .where(DELETION.c.sweep_id == _OF_SWEEP)
    .order_by(DELETION.c.tries, DELETION.c.since)
    .limit(bindparam("limit"))
)
_UNDELIVERED = (OUTBOX.c.sweep_id == _OF_SWEEP) & ~OUTBOX.c.delivered
_PENDING = select(*OUTBOX.columns).where(_UNDELIVERED).order_by(OUTBOX.c.seq).limit(bindparam("limit"))
_PENDING_REPORTS = (
    select(*REPORT.columns)
    .select_from(UNDELIVERED_REPORT)
    .where(
        TRIAL.c.sweep_id == _OF_SWEEP,
        tuple_(TRIAL.c.role, TRIAL.c.number) > tuple_(bindparam("role"), bindparam("number")),
    )
    .order_by(TRIAL.c.role, TRIAL.c.number, REPORT.c.at)  # as an index does: many reports of few runs
    .limit(bindparam("limit"))
)
_WAITING = (  # what MLflow lacks, by sweep
    (select(OUTBOX.c.sweep_id, func.count()).where(~OUTBOX.c.delivered), OUTBOX.c.sweep_id),
    (select(TRIAL.c.sweep_id, func.count()).select_from(UNDELIVERED_REPORT), TRIAL.c.sweep_id),
    (select(NOTE.c.sweep_id, func.count()).where(NOTE.c.delivered < NOTE.c.revision), NOTE.c.sweep_id),
)
_BACKLOGS = [
    counts.where(sweep_id.in_(bindparam("sweep_ids", expanding=True))).group_by(sweep_id)
    for counts, sweep_id in _WAITING
]
_EVENTS_LEFT, _REPORTS_LEFT, _NOTES_LEFT = (
    counts.with_only_columns(func.count()).where(sweep_id == _OF_SWEEP).scalar_subquery()
    for counts, sweep_id in _WAITING
)
_BACKLOG = select(_EVENTS_LEFT + _REPORTS_LEFT + _NOTES_LEFT)
_TAGS_OF_RUN = (
    select(*OUTBOX.columns)
    .where(
        OUTBOX.c.sweep_id == _OF_SWEEP,
        OUTBOX.c.run == _OF_SWEEP,
        or_(OUTBOX.c.kind == "start", OUTBOX.c.kind == "tags"),
    )
    .order_by(OUTBOX.c.seq)
)
_MODELS = select(*OUTBOX.columns).where(OUTBOX.c.sweep_id == _OF_SWEEP, OUTBOX.c.kind == "model")
