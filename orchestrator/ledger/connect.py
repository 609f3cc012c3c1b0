"""The door to the database: one engine a ledger, its settings, and who may use a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from orchestrator.errors import BadInput

BUSY_SECONDS = 30.0
# How long a server may take to accept a connection.
CONNECT_SECONDS = 10
WRITING = "ledger_write"
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb3", "smbfs", "afpfs", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs"}
    | {"glusterfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.ceph", "fuse.juicefs"}
)


def parse(url: str) -> URL:
    """Return the address of a ledger.

    Raises:
        BadInput: it is neither a SQLite file on a local disk nor a PostgreSQL database.
    """
    try:
        address = make_url(url)
    except ArgumentError:
        raise _unusable("something that is no URL") from None
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
    """Tell whether a ledger is a SQLite file."""
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
    """Return the engine of a ledger; nothing is opened yet.

    Raises:
        BadInput: the driver of PostgreSQL is not installed.
    """
    if is_file(address):
        engine = create_engine(address, hide_parameters=True, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        return create_engine(
            address,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={"connect_timeout": CONNECT_SECONDS, "application_name": "sweep"},
        )
    except ModuleNotFoundError:
        where, got = address.render_as_string(hide_password=True), "none"
        raise BadInput(where, "needs the package psycopg", got, "Install the extra `postgres`.") from None


def flush(address: URL) -> None:
    """Let every commit so far outlive the power too.

    SQLite itself does so for all that has left its write-ahead log. It holds no locks on that file, which
    closing it here would drop.
    """
    file = database_file(address)
    try:
        with file.with_name(f"{file.name}-wal").open("rb") as log:
            os.fsync(log.fileno())
    except FileNotFoundError:
        return


def _configure_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver would begin transactions by itself, and late
    cursor = connection.cursor()
    # NORMAL, not FULL: a commit outlives its process, and the power once `flush` was called. Only what the
    # outside world is to act on is flushed; to flush takes 0.2 ms on a quiet disk and 7 ms on a busy one.
    for pragma in ("synchronous=NORMAL", "foreign_keys=ON", "cell_size_check=ON", "temp_store=MEMORY"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later cannot wait for a lock; IMMEDIATE takes it at once.
    writing = connection.get_execution_options().get(WRITING, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
