"""The database of a simulation: real SQLite, whose statements are points and whose server can vanish.

A ledger on a simulated server uses the lease of PostgreSQL; SQLite supplies the server's clock as a function.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Pool, create_engine, event, make_url

from orchestrator.ledger.connect import (
    BUSY_SECONDS,
    SERVER_TIMEOUTS,
    begin_sqlite,
    configure_sqlite,
    file_identity,
    is_replaced,
)
from orchestrator.ledger.ledger import Ledger
from orchestrator.system import System
from tests.simulation.kernel import Kernel, Process, Signal
from tests.simulation.system import EPOCH, Machine

IDLE_SECONDS, LOCK_SECONDS = (
    float(SERVER_TIMEOUTS[name].removesuffix("s"))
    for name in ("idle_in_transaction_session_timeout", "lock_timeout")
)
"""Limits of a server: between two statements of a transaction, and of the wait for a lock."""

_dialect = create_engine("sqlite://").connect().dialect
_compiled: dict[Any, Any] = {}


class _Engine(Engine):
    """An engine of SQLite whose transactions are those of a ledger."""


event.listen(_Engine, "begin", begin_sqlite)


class Database:
    """One SQLite file, and who writes to it.

    Args:
        kernel: Kernel of the simulation.
        file: A copy of a ledger.
        disk: The machine that holds it, or None for a server, which drivers on several machines reach.

    Attributes:
        url: Url of the file.
        down: Whether it does not answer.
        writer: The connection that holds the write lock.
        transactions: The numbers of a server's transactions that were asked for, and how they ended.
        on_commit: Function that is called after each commit with the process and the labels of its statements
            that wrote.
    """

    def __init__(self, kernel: Kernel, file: Path, disk: Machine | None) -> None:
        self.kernel, self.file, self.disk, self.is_server = kernel, file, disk, disk is None
        self.url = make_url(f"sqlite:///{file}")
        self.down = False
        self.writer: _Connection | None = None
        self._connections: list[_Connection] = []
        self._closed: list[_Connection] = []
        self._looks: list[sqlite3.Connection] = []
        self.transactions: dict[str, str] = {}
        self.free = Signal()
        self.on_commit: Callable[[Process, list[str]], None] = lambda process, statements: None
        self.reopen()
        ((self.ledger_id,),) = self.rows("SELECT id FROM ledger")

    def reopen(self) -> None:
        """Open the file for `rows`; call it again when another file has taken its place.

        The earlier connection stays open: when the last one of a file is closed, SQLite moves every commit to
        the database, as no loss of power does, and deletes the log by its name, which the new file's log has.
        """
        self._looks.append(sqlite3.connect(self.file, isolation_level=None, check_same_thread=False))

    def ledger(self, process: Process, system: System) -> Ledger:
        """Return the ledger as a process opens it."""
        address = self.url.set(drivername="postgresql+psycopg") if self.is_server else self.url
        engine = self._engine(lambda: self._connect(process))
        ledger = Ledger(address, engine, system, reconnect_seconds=math.inf, notify=self.kernel.trace)
        ledger.id = self.ledger_id
        process.on_end.append(ledger.close)
        return ledger

    def _connect(self, process: Process) -> _Connection:
        """Return a connection of a process to the file that has the name now.

        One that has been closed is opened again: SQLite reads the schema, and compiles each statement, once
        for each of its connections, which takes longer than the statements.
        """
        while self._closed:
            connection = self._closed.pop()
            if not connection.is_replaced():
                connection.open(process)
                return connection
        identity = file_identity(self.file)
        connection = sqlite3.connect(self.file, timeout=0.0, factory=_Connection, check_same_thread=False)
        self._connections.append(connection)
        connection.place(self, identity)
        connection.open(process)
        configure_sqlite(connection)
        return connection

    def put_away(self, connection: _Connection) -> None:
        """Keep a closed connection for the next one that is opened."""
        self._closed.append(connection)

    def plain_ledger(self) -> Ledger:
        """Return the ledger as a process outside the simulation opens it: without points and outages."""
        ledger = Ledger(self.url, self._engine(lambda: sqlite3.connect(self.file, factory=_Handed)))
        ledger.id = self.ledger_id
        return ledger

    def _engine(self, connect: Callable[[], _Handed]) -> Engine:
        engine = _Engine(_Pool(connect), _dialect, self.url, hide_parameters=True)
        cached: Any = engine.execution_options(compiled_cache=_compiled)
        return cached

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return what is committed now, outside every simulated process."""
        return self._looks[-1].execute(query, values).fetchall()

    def count(self, rows: str) -> int:
        """Return the number of committed rows of a table under a condition, such as `trial WHERE ...`."""
        ((count,),) = self.rows(f"SELECT count(*) FROM {rows}")
        return int(count)

    def close(self) -> None:
        """Close every connection: those of killed processes, which SQLite keeps from being collected, too."""
        for connection in self._connections:
            connection.end()
        for look in self._looks:
            look.close()


class _Pool(Pool):
    """Keeps every connection of one process; without locks, because one thread runs at a time.

    It hands out the connections themselves: SQLAlchemy's wrappers of them take a twentieth of a simulation's
    time. It ends no transaction of a connection that comes back: each user ends its own. As the engine of a
    ledger does, it closes a connection whose file was replaced.
    """

    def __init__(self, connect: Callable[[], _Handed]) -> None:
        super().__init__(connect)
        self._connect, self.idle = connect, list[_Handed]()

    def connect(self) -> Any:
        while self.idle and self.idle[-1].is_replaced():
            self.idle.pop().leave()
        connection = self.idle.pop() if self.idle else self._connect()
        connection.pool = self
        return connection

    def recreate(self) -> Pool:
        return self  # it is empty after `dispose`

    def dispose(self) -> None:
        while self.idle:
            self.idle.pop().leave()


class _Handed(sqlite3.Connection):
    """A connection as SQLAlchemy takes it from a pool, and gives it back by closing it."""

    pool: _Pool
    is_valid = True

    def close(self) -> None:
        self.pool.idle.append(self)

    def _close_special(self, transaction_reset: bool = False) -> None:
        self.close()

    def invalidate(self, _: BaseException | None = None) -> None:
        """Leave the pool: the thread that uses the connection is killed."""
        self.leave()

    def leave(self) -> None:
        """Leave the pool."""
        super().close()

    def is_replaced(self) -> bool:
        """Return True if another file has the name of the open one."""
        return False


class _Cursor(sqlite3.Cursor):
    connection: _Connection

    def execute(self, sql: str, parameters: Any = ()) -> _Cursor:
        self.connection.begin(sql)
        super().execute(sql, parameters)
        self.connection.note(sql, self.rowcount)
        return self

    def executemany(self, sql: str, parameters: Any) -> _Cursor:
        self.connection.begin(sql)
        super().executemany(sql, parameters)
        self.connection.note(sql, self.rowcount)
        return self


class _Connection(_Handed):
    database: Database
    identity: tuple[int, int] | None
    owner: Process

    def place(self, database: Database, identity: tuple[int, int] | None) -> None:
        """Note which file it reaches."""
        self.database, self.identity = database, identity
        self.create_function("clock_timestamp", 0, lambda: EPOCH + database.kernel.now)
        self.create_function("strftime", 2, lambda _, moment: moment)
        self.create_function("pg_current_xact_id", 0, self._number)
        self.create_function("pg_xact_status", 1, lambda number: database.transactions[str(number)])

    def open(self, process: Process) -> None:
        """Begin a session of a process."""
        self.owner = process
        self.written: list[str] = []
        self.number: str | None = None
        self.idle_since = math.inf  # until its first statement
        self.ended = False

    def is_replaced(self) -> bool:
        return is_replaced(self.identity, self.database.file)

    def cursor(self, factory: type[sqlite3.Cursor] = _Cursor) -> sqlite3.Cursor:
        return super().cursor(factory)

    def begin(self, sql: str) -> None:
        """Pass the point before a statement; wait for the write lock if it needs that."""
        if sql.startswith("PRAGMA"):
            return
        database = self.database
        database.kernel.point()
        self._reach()
        if sql == "BEGIN IMMEDIATE":
            self._lock()
        elif database.disk is not None and database.disk.is_full and sql.startswith(_WRITES):
            raise _error("database or disk is full", "SQLITE_FULL")

    def note(self, sql: str, rows: int) -> None:
        """Remember a statement that has changed rows; of one that returns them, SQLite counts none yet."""
        if rows > 0 or (sql.startswith(_WRITES) and " RETURNING " in sql):
            self.written.append(_label(sql))
        self.idle_since = self.database.kernel.now

    def _reach(self) -> None:
        """Raise an error if the server does not answer, or has ended this session."""
        self.end_if_idle()
        if self.database.down:
            self._end()
        if self.ended:
            self.ended = False  # the next transaction begins another session
            raise sqlite3.OperationalError("server closed the connection unexpectedly")

    @property
    def idle_until(self) -> float:
        """Return when the database ends this session if no statement follows; a file never does."""
        return self.idle_since + IDLE_SECONDS if self.database.is_server else math.inf

    def end_if_idle(self) -> None:
        """End the session, as a server does, if its transaction has been idle for too long."""
        if self.in_transaction and self.database.kernel.now >= self.idle_until:
            self.database.kernel.trace(f"finds the idle transaction of {self.owner.name} ended")
            self._end()

    def _number(self) -> str:
        """Return the number of this transaction, as a server does that will be asked for its end."""
        self.number = str(len(self.database.transactions) + 1)
        self.database.transactions[self.number] = "in progress"
        return self.number

    def _end(self) -> None:
        self.ended = True
        super().rollback()
        self._forget()

    def _lock(self) -> None:
        database, kernel = self.database, self.database.kernel
        deadline = kernel.now + (LOCK_SECONDS if database.is_server else BUSY_SECONDS)
        while (writer := database.writer) is not None:
            kernel.wait(database.free, min(deadline, writer.idle_until) - kernel.now)
            if database.writer is writer:  # else its process may have ended, and closed it
                writer.end_if_idle()
            if database.writer is not None and kernel.now >= deadline:
                raise _locked(is_server=database.is_server)
        database.writer = self

    def _forget(self, end: str = "aborted") -> None:
        self.written = []
        if self.number is not None:
            self.database.transactions[self.number], self.number = end, None
        if self.database.writer is self:
            self.database.writer = None
            self.database.kernel.send(self.database.free)

    def commit(self) -> None:
        database = self.database
        database.kernel.point()
        self._reach()
        super().commit()
        written = self.written
        self._forget("committed")
        if written:
            database.kernel.trace(f"committed {', '.join(written)}")
            self.owner.commits += 1
            database.on_commit(self.owner, written)
            database.kernel.point()
            self._reach()

    def rollback(self) -> None:
        super().rollback()
        self.ended = False
        self._forget()

    def leave(self) -> None:
        """End the session, and keep the connection for another."""
        super().rollback()
        self._forget()
        self.database.put_away(self)

    def end(self) -> None:
        """Close the connection itself."""
        super().leave()


_WRITES = ("INSERT", "UPDATE", "DELETE")


def _locked(*, is_server: bool) -> sqlite3.OperationalError:
    if not is_server:
        return _error("database is locked", "SQLITE_BUSY")
    error = sqlite3.OperationalError("canceling statement due to lock timeout")
    error.sqlstate = "55P03"  # type: ignore[attr-defined]
    return error


def _error(text: str, name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error


_labels: dict[str, str] = {}


def _label(sql: str) -> str:
    """Return the verb and the table of a statement that writes."""
    if sql not in _labels:
        words = sql.split()
        table = {"INSERT": 2, "DELETE": 2, "UPDATE": 1}[words[0]]
        _labels[sql] = f"{words[0].lower()} {words[table]}"
    return _labels[sql]
