"""Bring a database to the tables of this version, once, however many start at the same time."""

from __future__ import annotations

import fcntl
import importlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, inspect, text

from orchestrator.errors import BadInput, Damaged
from orchestrator.ledger.backup import backup_folder
from orchestrator.ledger.connect import WRITING, database_file, is_file

# Its own table, so that MLflow's migrations of the same server never meet ours.
VERSION_TABLE = "ledger_version"
HEAD = "0002"
# Any number that no other program of the server locks; the digits spell "sweep" on a telephone.
ADVISORY_LOCK = 79337


def migrate(engine: Engine, address: URL) -> None:
    """Make or upgrade the tables, unless they are those of this version.

    Raises:
        BadInput: the database was written by a later version.
        Damaged: a SQLite file is empty or gone, and its backup is not.
    """
    if not is_file(address):
        _migrate_locked(engine)
        return
    file = database_file(address)
    if file.exists() and _version(engine) == HEAD:
        return
    with exclusively(lock_folder(address) / "migration"):
        if any(backup_folder(address).glob("*.log")) and not (file.exists() and _version(engine)):
            remedy = "Run `recover` to rebuild it, or remove its backup to start anew."
            raise Damaged(f"ledger {file}", "must hold the sweeps of its backup", "an empty one", remedy)
        make_tables(engine, file)


def make_tables(engine: Engine, file: Path) -> None:
    """Make or upgrade the tables of a SQLite file; the caller holds the lock of migrations."""
    _use_write_ahead_log(file)
    _migrate_locked(engine)


def lock_folder(address: URL) -> Path:
    """Return the folder of lock files beside a SQLite ledger."""
    return database_file(address).with_suffix(".locks")


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Hold a lock on a file that the kernel releases with the process, waiting for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _use_write_ahead_log(path: Path) -> None:
    # Readers then never wait for the writer. The mode is kept in the file, so it is set once; here, under the
    # file lock, for SQLite does not wait for its own lock to change it.
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


def _migrate_locked(engine: Engine) -> None:
    with engine.connect().execution_options(**{WRITING: True}) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            if _version_here(connection) == HEAD:
                return
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        version = _version_here(connection)
        if version == HEAD:
            return
        if version is not None and version > HEAD:
            raise BadInput(
                "ledger",
                f"must have tables of version {HEAD} or older",
                f"version {version}",
                "Install the version of this program that wrote it, or a later one.",
            )
        # Alembic takes a third of a second to import, and a database is made only once.
        importlib.import_module("orchestrator.ledger.migrations.upgrade").upgrade(connection, HEAD)


def _version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return _version_here(connection)


def _version_here(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()
