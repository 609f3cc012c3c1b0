"""Connection to the ledger's database: addresses, engine settings, retries after a failure."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DBAPIError,
    DisconnectionError,
    InvalidatePoolError,
    OperationalError,
)

from orchestrator.errors import RECOVER, BadInput, Damaged, NoDatabase, NoSpace
from orchestrator.ledger.prepared import command
from orchestrator.system import System
from trainables.errors import Refusal

Result = TypeVar("Result")

BUSY_SECONDS = 30.0
"""Seconds for which SQLite itself waits for a lock."""

BUSY_TRIES = 3
"""Tries of a transaction that meets a lock or a conflicting transaction."""

CONNECT_SECONDS = 10
"""Timeout for a server to accept a connection."""

SOCKET_OPTIONS = {
    "connect_timeout": CONNECT_SECONDS,
    "tcp_user_timeout": 20_000,  # milliseconds for which sent data may stay unacknowledged
    "keepalives": 1,
    "keepalives_idle": 10,  # seconds
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
"""Timeouts of the connection to PostgreSQL: a server that is cut off is given up after 20 to 25 s."""

SERVER_TIMEOUTS = {
    "statement_timeout": "60s",
    "lock_timeout": "20s",
    "idle_in_transaction_session_timeout": "30s",
}
"""Limits that the server enforces, so that a stopped driver does not hold a lock for ever."""

RECONNECT_SECONDS = 90.0
"""Longest outage of a server before a command fails: one that restarts is back within a minute."""

FIRST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 5.0
"""The wait before a transaction is tried again, doubled from the first to the longest."""

NOTIFY_SECONDS = 5.0
"""Seconds of an outage before it is reported."""

IDLE_SECONDS = 1.0
"""Idle time after which a connection to PostgreSQL is looked at before it is used."""

USED_AT = "ledger_used_at"
WRITING = "ledger_write"
FILE_IDENTITY = "ledger_file"
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb3", "smbfs", "afpfs", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs"}
    | {"glusterfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.ceph", "fuse.juicefs"}
)
SQLITE_PARTS = ("", "-wal", "-shm", "-journal")
"""Suffixes of the files of a SQLite database."""


def parse(url: str) -> URL:
    """Return the address of a ledger.

    Raises:
        BadInput: `url` is neither a SQLite file on a local disk nor a PostgreSQL database.
    """
    try:
        address = make_url(url)
    except ArgumentError:
        raise _unusable("something else") from None
    if address.get_backend_name() == "postgresql" and address.database:
        return address.set(drivername="postgresql+psycopg")
    if address.get_backend_name() != "sqlite" or address.database in (None, "", ":memory:"):
        raise _unusable(address.render_as_string(hide_password=True))
    refuse_network_disk(database_file(address))
    return address.set(drivername="sqlite", database=str(database_file(address)))


def _unusable(got: str) -> BadInput:
    return BadInput(
        "ledger",
        "must be a SQLite file or a PostgreSQL database",
        got,
        "Write sqlite:///mlruns/sweeps.db or postgresql://user@host/database.",
    )


def is_file(address: URL) -> bool:
    """Return True if a ledger is a SQLite file."""
    return address.get_backend_name() == "sqlite"


def database_file(address: URL) -> Path:
    """Return the absolute path of a SQLite ledger."""
    return Path(str(address.database)).absolute()


def file_system(path: Path) -> str:
    """Return the type of the file system that holds `path`, which need not exist yet."""
    resolved = path.resolve()
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    inside = [mount for mount in mounts if resolved.is_relative_to(mount)]
    return mounts[max(inside, key=lambda mount: len(mount.parts))] if inside else ""


def refuse_network_disk(path: Path) -> None:
    """Check that a SQLite file is on a file system with reliable locks.

    Raises:
        BadInput: The file is on a network file system.
    """
    kind = file_system(path.parent)
    if kind in NETWORK_FILE_SYSTEMS:
        raise BadInput(
            f"ledger {path}",
            "must be on a local disk, because locks are unreliable on a network file system",
            f"a file system of type {kind}",
            "Use a local path, or a server: postgresql://user@host/database.",
        )


def connect(address: URL) -> Engine:
    """Return the engine of a ledger, without opening a connection.

    Raises:
        BadInput: The driver for PostgreSQL is not installed.
    """
    if is_file(address):
        engine = create_engine(address, hide_parameters=True, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", configure_sqlite)
        event.listen(engine, "begin", begin_sqlite)
        _leave_replaced_files(engine, database_file(address))
        return engine
    try:
        engine = create_engine(
            address,
            hide_parameters=True,
            connect_args={**SOCKET_OPTIONS, "application_name": "sweep"},
        )
    except ModuleNotFoundError:
        where = address.render_as_string(hide_password=True)
        must = "needs the package psycopg"
        raise BadInput(where, must, "", "Install the extra `postgres`.") from None
    event.listen(engine, "connect", _configure_postgresql)
    _look_at_idle_connections(engine)
    return engine


def _look_at_idle_connections(engine: Engine) -> None:
    """Replace the pooled connections of a lost server when one is taken that was idle for a while.

    A look costs a round trip. Without one, the first statement of a transaction finds out, and
    `with_retries` repeats the transaction.
    """

    def note(_connection: Any, record: Any) -> None:
        record.info[USED_AT] = time.monotonic()

    def look(connection: Any, record: Any, _proxy: Any) -> None:
        if time.monotonic() - record.info.get(USED_AT, math.inf) <= IDLE_SECONDS:  # or it is new
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError("the server is lost") from error

    event.listen(engine, "checkin", note)
    event.listen(engine, "checkout", look)


def _leave_replaced_files(engine: Engine, file: Path) -> None:
    """Close a pooled connection of SQLite when it is taken, if `recover` has replaced its file meanwhile."""

    def note(_dialect: Any, record: Any, _arguments: Any, _options: Any) -> None:
        # Before the file is opened: a replacement between the two costs one more connection.
        record.info[FILE_IDENTITY] = file_identity(file)

    def compare(_connection: Any, record: Any, _proxy: Any) -> None:
        if is_replaced(record.info[FILE_IDENTITY], file):
            raise DisconnectionError("recover has replaced the file")

    event.listen(engine, "do_connect", note)
    event.listen(engine, "checkout", compare)


def file_identity(file: Path) -> tuple[int, int] | None:
    """Return the device and the inode of a file, or None if it does not exist."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def is_replaced(opened: tuple[int, int] | None, file: Path) -> bool:
    """Return True if another file is at the path of an open one; False also if no file is there.

    Args:
        opened: Identity of the open file.
        file: Path from which it was opened.
    """
    return (present := file_identity(file)) is not None and present != opened


def flush(address: URL) -> None:
    """Make every commit so far of a SQLite file survive a power failure.

    SQLite itself flushes pages that have left its write-ahead log. It holds no locks on the log file, so
    opening and closing the file here releases none.
    """
    file = database_file(address)
    try:
        with file.with_name(f"{file.name}-wal").open("rb") as log:
            os.fsync(log.fileno())
    except FileNotFoundError:
        return


def _configure_postgresql(connection: Any, _record: Any) -> None:
    # Not as an option of the connection: poolers in front of a server refuse those.
    with connection.cursor() as cursor:
        for name, value in SERVER_TIMEOUTS.items():
            cursor.execute(f"SET {name} = '{value}'")
    connection.commit()


def configure_sqlite(connection: Any, _record: Any = None) -> None:
    """Prepare a new connection of SQLite for a ledger."""
    connection.isolation_level = None  # the driver would begin transactions by itself, and late
    cursor = connection.cursor()
    # NORMAL, not FULL: a commit survives the process, and a power failure only after `flush`, which is called
    # before anything outside acts on a commit. A flush takes 0.2 ms on a quiet disk and 7 ms on a busy one.
    for pragma in ("synchronous=NORMAL", "foreign_keys=ON", "cell_size_check=ON", "temp_store=MEMORY"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def begin_sqlite(connection: Connection) -> None:
    """Begin a transaction of SQLite; one that will write takes the write lock."""
    # A transaction that reads first and writes later cannot wait for a lock; IMMEDIATE takes it at once.
    writing = connection.get_execution_options().get(WRITING, False)
    command(connection, "BEGIN IMMEDIATE" if writing else "BEGIN")


def transaction_number(connection: Connection) -> str:
    """Return the number of the current transaction of PostgreSQL, for `is_committed`."""
    return str(connection.execute(_NUMBER).scalar_one())


def is_committed(connection: Connection, number: str) -> bool:
    """Return True if an earlier transaction of PostgreSQL was committed, and False if it was not.

    Source: PostgreSQL's manual, 9.27 System Information Functions, `pg_xact_status`.

    Args:
        connection: Another connection than that of the transaction.
        number: Number of the transaction.

    Raises:
        OperationalError: The transaction has not ended yet, as its server has not noticed the loss.
    """
    status = connection.execute(_STATUS, {"number": number}).scalar_one()
    if status == "in progress":
        raise OperationalError(str(_STATUS), {}, ConnectionError("the last transaction has not ended yet"))
    return bool(status == "committed")


_NUMBER = text("SELECT CAST(pg_current_xact_id() AS text)")
_STATUS = text("SELECT pg_xact_status(CAST(:number AS xid8))")


class DatabaseOutages:
    """Sum of the time in which a database has kept this process waiting; safe to share between threads.

    Attributes:
        seconds: Duration of the transactions that took longer than `NOTIFY_SECONDS`, without overlaps.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._intervals: list[tuple[float, float]] = []  # disjoint: one for each outage
        self._lock = threading.Lock()

    def add(self, began: float, ended: float) -> None:
        """Add a transaction by the times of its first try and its commit, from `System.monotonic`."""
        if ended - began > NOTIFY_SECONDS:
            with self._lock:
                # The transaction that has waited longest may be the last one to end.
                apart = [one for one in self._intervals if one[1] < began or ended < one[0]]
                joined = [(began, ended), *(one for one in self._intervals if one not in apart)]
                self._intervals = [*apart, (min(one[0] for one in joined), max(one[1] for one in joined))]
                self.seconds = sum(until - since for since, until in self._intervals)


def with_retries(
    attempt: Callable[[], Result],
    where: str,
    *,
    reconnect_seconds: float = RECONNECT_SECONDS,
    system: System = System(),
    notify: Callable[[str], None] = lambda line: None,
) -> Result:
    """Run a transaction, and retry it with backoff after a lock, a conflict or the loss of the server.

    Args:
        attempt: Idempotent transaction.
        where: Address of the ledger without its password, for errors.
        reconnect_seconds: Longest outage of a server; infinite for a driver.
        system: System of the process.
        notify: Function that receives a line when the server has been unreachable for some seconds, and
            another one when it answers again.

    Raises:
        BadInput: The database stayed locked.
        NoDatabase: Its server stayed unreachable.
        Damaged: SQLite cannot read its file.
        NoSpace: The disk is full.
    """
    began, wait, blocked, notified = system.monotonic(), FIRST_RETRY_SECONDS, 0, False
    while True:
        try:
            result = attempt()
            if notified:
                notify(f"{where} answers again, after {system.monotonic() - began:.0f} s.")
            return result
        except DBAPIError as error:
            is_blocked = _is_locked(error) or _is_conflict(error)
            blocked += is_blocked
            waited = system.monotonic() - began
            in_time = waited + wait <= reconnect_seconds
            if not (blocked < BUSY_TRIES if is_blocked else _is_lost(error) and in_time):
                raise (_refusal(error, where) or error) from error
            if not (is_blocked or notified) and waited > NOTIFY_SECONDS:
                notified = True
                since = time.strftime("%H:%M:%S", time.localtime(system.time() - waited))
                notify(f"{where} has not answered since {since}: waiting. {_reason(error)}.")
        system.sleep(wait)
        wait = min(2 * wait, LONGEST_RETRY_SECONDS)


def _is_locked(error: DBAPIError) -> bool:
    """Return True if another process held a lock of SQLite for too long."""
    return _sqlite_code(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _is_conflict(error: DBAPIError) -> bool:
    """Return True if another transaction of PostgreSQL wrote the same row, or blocked this one."""
    return getattr(error.orig, "sqlstate", None) == "23505" or _is_blocked(error)


def _is_blocked(error: DBAPIError) -> bool:
    # serialization_failure, deadlock_detected, and lock_not_available after `lock_timeout`.
    return getattr(error.orig, "sqlstate", None) in {"40001", "40P01", "55P03"}


def _is_lost(error: DBAPIError) -> bool:
    lost = error.connection_invalidated or isinstance(error, OperationalError)
    return lost and not _sqlite_code(error) and not _is_full(error) and not _is_undecodable(error)


def _is_full(error: DBAPIError) -> bool:
    # 53100 is PostgreSQL's disk_full; SQLITE_IOERR_SHMSIZE is raised when SQLite's shared memory cannot grow.
    full = _sqlite_code(error) in {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"}
    return full or getattr(error.orig, "sqlstate", None) == "53100"


def _is_damage(error: DBAPIError) -> bool:
    return _sqlite_code(error).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or (
        (type(error) is DatabaseError and bool(_sqlite_code(error))) or _is_undecodable(error)
    )


def _is_undecodable(error: DBAPIError) -> bool:
    """Return True if Python's driver of SQLite has read invalid UTF-8, for which it has no error code."""
    return str(error.orig).startswith("Could not decode to UTF-8")


def _sqlite_code(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlite_errorname", ""))


def _reason(error: DBAPIError) -> str:
    return next(iter(str(error.orig).strip().splitlines()), type(error.orig).__name__)


def _refusal(error: DBAPIError, where: str) -> Refusal | None:
    if _is_locked(error):
        must = f"is locked by another process for more than {BUSY_TRIES * BUSY_SECONDS:g} s"
        remedy = "Find the process that holds it (`lsof`), or use PostgreSQL if many processes write."
        return BadInput(where, must, "", remedy)
    if _is_blocked(error):
        must = "transactions block each other"
        return BadInput(where, must, _reason(error), "Run the same command again.")
    if _is_full(error):
        remedy = "Free some space, and run the same command again."
        return NoSpace(where, "needs space to write", str(error.orig), remedy)
    if _is_damage(error):
        return Damaged(where, "must be an intact SQLite database", str(error.orig), RECOVER)
    if _is_lost(error):
        got = _reason(error)
        return NoDatabase(where, "does not answer", got, "Start it, or use another one.")
    return None
