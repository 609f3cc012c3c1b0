"""Creation and upgrade of a ledger's tables, once, even if several processes start at the same time."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    insert,
    inspect,
    select,
    text,
)

from orchestrator.accounts import umask
from orchestrator.errors import DISK_FULL, BadInput, Damaged, NoSpace
from orchestrator.ledger.backup import has_backup, keep_id
from orchestrator.ledger.connect import WRITING, database_file, is_file
from orchestrator.ledger.prepared import read
from orchestrator.ledger.tables import IDENTITY, METADATA

if TYPE_CHECKING:
    from filelock import FileLock

# A table of its own, so that MLflow's migrations on the same server do not meet these.
VERSION_TABLE = "ledger_version"
_VERSION = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
"""As Alembic creates it; apart from `METADATA`, with which Alembic compares the other tables."""
_VERSION_AND_ID = select(
    select(_VERSION.c.version_num).scalar_subquery(), select(IDENTITY.c.id).scalar_subquery()
)
HEAD = "0001"
MIGRATIONS = Path(__file__).with_name("migrations")
MIGRATION_LOCK = "migration"
RECOVERY_LOCK = "recovery"
"""A driver shares this lock while it holds a lease, and every other process while it changes rows.

`recover` holds it alone while it rebuilds and replaces the file.
"""
# Any number that no other program of the server locks; the digits spell "sweep" on a telephone.
ADVISORY_LOCK = 79337


def migrate(engine: Engine, address: URL) -> None:
    """Create or upgrade the tables, unless they are those of this version.

    Raises:
        BadInput: A later version wrote the database.
        Damaged: A SQLite file is empty or missing although its backup exists.
        NoSpace: The disk of a SQLite file is full.
    """
    if not is_file(address):
        _migrate_locked(engine)
        return
    file = database_file(address)
    if file.exists() and _version(engine) == HEAD:
        return
    with refused_without_space(lock_folder(address)), migration_lock(address):
        if has_backup(address) and not (file.exists() and _version(engine)):
            remedy = "Rebuild it with `recover`, or remove its backup to start with an empty one."
            raise Damaged(f"ledger {file}", "is empty, but its backup is not", "", remedy)
        create_tables(engine, file)
        keep_id(address, ledger_id(engine))


def is_ledger(engine: Engine, address: URL, expected_id: str) -> bool:
    """Return True if a database has the tables of this version, and the ledger with an ID.

    Raises:
        DBAPIError: The database refuses the query, or is lost.
    """
    if is_file(address) and not database_file(address).exists():  # an open connection outlives its file
        return False
    [found] = read(engine, _VERSION_AND_ID, {})
    return tuple(found) == (HEAD, expected_id)


def ledger_id(engine: Engine) -> str:
    """Return the random ID of a ledger."""
    with engine.connect() as connection:
        return str(connection.execute(select(IDENTITY.c.id)).scalar_one())


def create_tables(engine: Engine, file: Path) -> None:
    """Create or upgrade the tables of a SQLite file; the caller holds the migration lock."""
    _use_write_ahead_log(file)
    _migrate_locked(engine)


def lock_folder(address: URL) -> Path:
    """Return the folder of lock files beside a SQLite ledger."""
    return database_file(address).with_suffix(".locks")


@contextmanager
def refused_without_space(path: Path, what: str = "a lock") -> Iterator[None]:
    """Raise NoSpace if the disk is full where a `with` block writes files, by default that of a lock."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        must, got = f"needs space for {what}", str(error.strerror)
        raise NoSpace(str(path), must, got, "Free some space, and run the same command again.") from error


def migration_lock(address: URL) -> FileLock:
    """Return the lock for creating or replacing a SQLite file."""
    from filelock import FileLock  # most commands find the tables in place, and take no lock

    folder = lock_folder(address)
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / MIGRATION_LOCK)


def _use_write_ahead_log(path: Path) -> None:
    # With it readers never wait for the writer. The mode is a property of the file, so it is set once, and
    # under the file lock, because SQLite does not wait for its own lock when it changes the mode.
    path.touch(mode=0o666 & ~umask())  # the other files of the database get the same mode
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


def _migrate_locked(engine: Engine) -> None:
    with engine.connect().execution_options(**{WRITING: True}) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            if _version_of(connection) == HEAD:
                return
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        version = _version_of(connection)
        if version is None:
            _create(connection)
        elif version > HEAD:
            remedy = "Install the version of this program that wrote it, or a later one."
            must, got = f"must have tables of version {HEAD} or older", f"version {version}"
            raise BadInput("ledger", must, got, remedy)
        elif version < HEAD:
            _upgrade(connection)


def _create(connection: Connection) -> None:
    """Create the tables of a new ledger from their declarations.

    Alembic takes a third of a second to import. A test compares these tables with those of the revisions.
    """
    METADATA.create_all(connection, checkfirst=False)
    _VERSION.create(connection, checkfirst=False)
    connection.execute(insert(IDENTITY).values(id=uuid.uuid4().hex[:12]))
    connection.execute(insert(_VERSION).values(version_num=HEAD))


def _upgrade(connection: Connection) -> None:
    """Run the missing revisions of `migrations/` in the connection's transaction, without output."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


def _version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return _version_of(connection)


def _version_of(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()
