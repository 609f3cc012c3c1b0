"""The door to the database: one engine a ledger, its settings, and who may use a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, OperationalError

from orchestrator.errors import BadInput, Damaged

Result = TypeVar("Result")

BUSY_SECONDS = 30.0
# A lock held for 25 s is waited for once; this bounds how often a longer one is waited for again.
BUSY_TRIES = 3
# A server that restarts is back within a minute; after that a person has to look.
RECONNECT_SECONDS = 90.0
WRITING = "ledger_write"
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb3", "smbfs", "afpfs", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs"}
    | {"glusterfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.ceph", "fuse.juicefs"}
)


def parse(url: str) -> URL:
    """Return the address of a ledger.

    Raises:
        BadInput: it is neither a SQLite file on a local disk nor a PostgreSQL server.
    """
    try:
        address = make_url(url)
    except ArgumentError:
        raise _unusable("(not a URL)") from None
    if address.get_backend_name() == "postgresql":
        return address.set(drivername="postgresql+psycopg")
    if address.get_backend_name() != "sqlite" or address.database in (None, "", ":memory:"):
        raise _unusable(address.render_as_string(hide_password=True))
    refuse_network_disk(database_file(address))
    return address


def _unusable(got: str) -> BadInput:
    return BadInput(
        "ledger",
        "must be a SQLite file or a PostgreSQL database",
        got,
        "Write sqlite:///mlruns/sweeps.db or postgresql://user@host/database.",
    )


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
    """Refuse a SQLite file where locks do not hold.

    Raises:
        BadInput: the file lies on a network file system.
    """
    kind = file_system(path.parent)
    if kind in NETWORK_FILE_SYSTEMS:
        raise BadInput(
            f"ledger {path}",
            "a SQLite file must lie on a local disk, for its locks do not hold on a network file system",
            f"a file system of type {kind}",
            "Name a local path, or a server: postgresql://user@host/database.",
        )


def connect(address: URL) -> Engine:
    """Return the engine of a ledger; nothing is opened yet."""
    if address.get_backend_name() == "postgresql":
        return create_engine(address, pool_pre_ping=True, hide_parameters=True)
    database_file(address).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        address.set(database=str(database_file(address))),
        hide_parameters=True,
        connect_args={"timeout": BUSY_SECONDS},
    )
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver would begin transactions by itself, and late
    cursor = connection.cursor()
    # FULL, not NORMAL: a superseded checkpoint is deleted and an event delivered on the strength of a commit,
    # so a commit must outlive the power too. It costs one fsync of the write-ahead log a transaction.
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "cell_size_check=ON", "temp_store=MEMORY"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later cannot wait for a lock; IMMEDIATE takes it at once.
    writing = connection.get_execution_options().get(WRITING, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def patiently(
    attempt: Callable[[], Result], where: str, sleep: Callable[[float], None] = time.sleep
) -> Result:
    """Run a whole transaction, again after a lock or a lost server, within bounds.

    Args:
        attempt: the transaction; it must be right to run twice.
        where: the ledger without its password, for errors.
        sleep: waits that many seconds.

    Raises:
        BadInput: the database stayed locked or away.
        Damaged: SQLite cannot read its file.
    """
    deadline, wait, busy = time.monotonic() + RECONNECT_SECONDS, 0.1, 0
    while True:
        try:
            return attempt()
        except DBAPIError as error:
            busy += _is_locked(error)
            hopeless = busy >= BUSY_TRIES if _is_locked(error) else not _is_lost(error)
            if hopeless or time.monotonic() > deadline:
                raise _refusal(error, where) from error
        sleep(wait)
        wait = min(2 * wait, 5.0)


def _is_locked(error: DBAPIError) -> bool:
    return "database is locked" in str(error.orig) or "database table is locked" in str(error.orig)


def _is_lost(error: DBAPIError) -> bool:
    if "sqlite" in type(error.orig).__module__:
        return False
    return error.connection_invalidated or isinstance(error, OperationalError)


def _refusal(error: DBAPIError, where: str) -> Exception:
    if _is_locked(error):
        remedy = "Find who holds it (`lsof`), or use PostgreSQL where many write."
        return BadInput(
            where, "must not stay locked", f"a lock longer than {BUSY_TRIES * BUSY_SECONDS:g} s", remedy
        )
    if _is_lost(error):
        remedy = "Start the server, or name another with --ledger."
        return BadInput(where, "the database must answer", str(error.orig).strip().splitlines()[0], remedy)
    if "sqlite" in type(error.orig).__module__ and _is_damage(error):
        remedy = "Run `recover` to rebuild the ledger from its backup."
        return Damaged(where, "must be a sound SQLite database", str(error.orig), remedy)
    return error


def _is_damage(error: DBAPIError) -> bool:
    code = getattr(error.orig, "sqlite_errorname", "")
    return code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or type(error) is DatabaseError
