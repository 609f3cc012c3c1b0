"""The backup of the submissions in a SQLite ledger: one file for each, beside the logs of the sweeps.

    <sweeps>.backup/submissions/<sweep id>.json      <digest> <columns of the row>

A file is replaced after each commit that changes its row, so it is never ahead of an intact database. The
column `revision` counts the commits of a row: a file with a higher revision than its row proves that the
database has lost commits, or that a flipped bit has hidden them.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock
from sqlalchemy import URL

from orchestrator.ledger.backup import submission_folder
from trainables.durable import make_folder, replace_file

Row = Mapping[str, Any]
"""The columns of a submission, as the database holds them."""

_log = logging.getLogger(__name__)


def submission_file(address: URL, sweep_id: str) -> Path:
    """Return the backup file of one submission."""
    return submission_folder(address) / f"{sweep_id}.json"


@contextmanager
def keeping(address: URL) -> Iterator[None]:
    """Hold the lock of the backup, from a commit to its files, so that both have the same order."""
    folder = submission_folder(address)
    make_folder(folder)
    with FileLock(folder / "lock"):
        yield


def keep(address: URL, rows: Iterable[Row]) -> None:
    """Write the files of rows, durably. If that fails the backup falls behind, and the commit stands."""
    for row in rows:
        keep_row(submission_file(address, row["sweep_id"]), row)


def keep_row(file: Path, row: Row) -> None:
    """Write a row to a file of the backup, durably. If that fails the backup falls behind."""
    try:
        replace_file(file, _line(row))
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


def kept_files(address: URL) -> list[Path]:
    """Return the backup files of all submissions, damaged ones included."""
    return sorted(submission_folder(address).glob("*.json"))


def _line(row: Row) -> bytes:
    text = json.dumps(dict(row), separators=(",", ":"), sort_keys=True).encode()
    return _digest(text) + b" " + text


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode()
