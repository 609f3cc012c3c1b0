"""Backup of single rows of a SQLite ledger: one file for each, beside the logs of the sweeps.

    <sweeps>.backup/submissions/<sweep ID>.json                 <digest> <columns of the row>
    <sweeps>.backup/users/<name>.json
    <sweeps>.backup/decisions/stop_request/<sweep ID>.json
    <sweeps>.backup/decisions/wanted_setting/<id>.json
    <sweeps>.backup/decisions/trial_request/<trial key>.json
    <sweeps>.backup/decisions/note/<sweep ID or trial key>.json
    <sweeps>.backup/decisions/shelf/<sweep ID>.json
    <sweeps>.backup/decisions/priority/<sweep ID>.json
    <sweeps>.backup/decisions/owner/<name>.json                 weight, quotas, use until they were set

A file is written after the commit of its row and before the change is acknowledged. It is never ahead of an
intact database: a submission whose file has a higher revision than its row proves that commits were lost.
The file of a user is deleted before the row changes, so that a backup never restores a revoked token.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, RowMapping, Table, select

from orchestrator.ledger.backup import row_folder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.schema import refused_without_space
from orchestrator.ledger.tables import SUBMISSION
from trainables.durable import make_folder, replace_file

Row = Mapping[str, Any]
"""The columns of a row, as the database holds them."""

_log = logging.getLogger(__name__)


def row_file(address: URL, table: Table, key: str) -> Path:
    """Return the backup file of a row."""
    return row_folder(address, table) / f"{quote(key, safe='')}.json"


def row_files(address: URL, table: Table) -> list[Path]:
    """Return the backup files of all rows of a table, damaged ones included."""
    return sorted(row_folder(address, table).glob("*.json"))


@contextmanager
def keeping(ledger: Ledger) -> Iterator[None]:
    """Hold the lock of the backup from a commit to its files, so that both have the same order.

    Does nothing for PostgreSQL, which has backups of its own.

    Raises:
        NoSpace: The disk is full, and the file of the lock does not exist yet.
    """
    if not ledger.is_file:
        yield
        return
    from filelock import FileLock  # commands that only read take no lock

    folder = row_folder(ledger.address, SUBMISSION)
    with ExitStack() as held:
        with refused_without_space(folder):
            make_folder(folder)
            held.enter_context(FileLock(folder / "lock"))
        yield


def keep(address: URL, table: Table, row: Row) -> None:
    """Write the file of a row, durably. If that fails, the backup falls behind and the commit stands."""
    [column] = table.primary_key.columns
    file = row_file(address, table, str(row[column.name]))
    text = json.dumps(dict(row), separators=(",", ":"), sort_keys=True).encode()
    try:
        make_folder(file.parent)
        replace_file(file, _digest(text) + b" " + text)
    except OSError as error:
        _log.warning("The ledger's backup %s falls behind: %s", file, error)


def kept(file: Path) -> Row | None:
    """Return the row in a file; None if the file is missing or damaged."""
    try:
        digest, _, text = file.read_bytes().partition(b" ")
    except FileNotFoundError:
        return None
    if _digest(text) != digest:
        return None
    row: Row = json.loads(text)
    return row


@contextmanager
def renewing(ledger: Ledger, table: Table, key: str) -> Iterator[None]:
    """Bring the file of a row up to date after a `with` block that changes the row, and flush both.

    `recover` does not replace the database meanwhile.

    Args:
        ledger: Ledger of the row.
        table: Table of the row.
        key: Primary key of the row.
    """
    with ledger.in_place():
        yield
        renew(ledger, table, key)
        ledger.flush()


def renew(ledger: Ledger, table: Table, key: str) -> None:
    """Bring the file of a row up to date after a commit; delete it if the row is gone.

    The caller holds a lease, or keeps the database in place.

    Args:
        ledger: Ledger of the row.
        table: Table of the row.
        key: Primary key of the row.
    """
    if not ledger.is_file:
        return
    [column] = table.primary_key.columns
    query = select(*table.columns).where(column == key)

    def read() -> RowMapping | None:
        with ledger.reader() as connection:
            return connection.execute(query).mappings().one_or_none()

    with keeping(ledger):  # so that an earlier row does not replace the file of the last commit
        if (row := ledger.retried(read)) is None:
            row_file(ledger.address, table, key).unlink(missing_ok=True)
        else:
            keep(ledger.address, table, dict(row))


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode()
