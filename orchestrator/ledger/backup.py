"""The backup of a SQLite ledger: for each sweep, a log of everything that was committed, beside the database.

SQLite keeps no checksums of its pages, and a flipped bit in its write-ahead log silently drops every later
commit. Each commit is therefore also appended to a log, as one line with its own digest and number:

    <sweeps>.backup/<sweep id>.log      <digest> [number, [[table, key, changed columns or null], ...]]
    <sweeps>.backup/ledger.id           the id of the ledger

A line is written after its commit, so the log is never ahead of an intact database: if it is, the database
has lost commits. Lines are not flushed to disk one by one, but whenever the database is. After a power
failure either may be behind: the ledger is rebuilt if the log leads further, else the log is rewritten.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import URL

from orchestrator.ledger.connect import database_file
from trainables.durable import make_folder, replace_file

BLOCK = 1 << 16
"""Bytes that are read at a time from the end of a log."""

_log = logging.getLogger(__name__)

Change = tuple[str, Mapping[str, Any], Mapping[str, Any] | None]
"""A table, the key of a row, and its columns: all of a new row, the changed ones, or None if deleted."""


@dataclass(frozen=True)
class Entry:
    """One commit of a sweep; `number` counts from 1. An entry with the whole state has its last commit's."""

    number: int
    changes: Sequence[Change]


def backup_folder(address: URL) -> Path:
    """Return the folder of logs beside a SQLite ledger."""
    return database_file(address).with_suffix(".backup")


def backup_file(address: URL, sweep_id: str) -> Path:
    """Return the log of one sweep."""
    return backup_folder(address) / f"{sweep_id}.log"


def kept_id(address: URL) -> str | None:
    """Return the id of a ledger as its backup has it, or None."""
    try:
        return _id_file(address).read_text() or None
    except FileNotFoundError:
        return None


def keep_id(address: URL, ledger_id: str) -> None:
    """Write the id of a ledger to its backup, unless the backup has it."""
    if kept_id(address) == ledger_id:
        return
    file = _id_file(address)
    make_folder(file.parent)
    replace_file(file, ledger_id.encode())


def _id_file(address: URL) -> Path:
    return backup_folder(address) / "ledger.id"


@contextmanager
def appending(path: Path) -> Iterator[BinaryIO]:
    """Lock and open the log of a sweep. Hold it from a commit to its line, so that both have one order."""
    with _opened(path) as file:
        # The log itself is locked: a lock file beside it would cost a further open and close at each commit.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("ab")
    except FileNotFoundError:
        make_folder(path.parent)
        return path.open("ab")


def append(file: BinaryIO, entry: Entry) -> None:
    """Write one line. If that fails the log falls behind, and the commit stands."""
    try:
        file.write(_line(entry))
        file.flush()
    except OSError as error:
        _log.warning("The ledger's backup %s falls behind: %s", file.name, error)


def flush(path: Path) -> None:
    """Make every line of a log so far survive a power failure, unless the log was removed."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        os.fsync(file.fileno())


def entries(path: Path) -> Iterator[Entry]:
    """Yield the entries from the start, up to the first line that is damaged, torn or out of sequence."""
    last: int | None = None
    for line in _lines(path):
        entry = _entry(line)
        if entry is None or (last is not None and entry.number != last + 1):
            return
        last = entry.number
        yield entry


def newest(path: Path) -> int:
    """Return the number of the last intact line, even one behind a damaged line; 0 if there is none.

    Lines have the order of their commits, so it is the highest number. Only the end of the log is
    read, unless no line in it is intact.
    """
    size = path.stat().st_size if path.exists() else 0
    window = min(BLOCK, size)
    while window:
        with path.open("rb") as file:
            file.seek(size - window)
            lines = file.read().splitlines(keepends=True)
        for line in reversed(lines if window == size else lines[1:]):
            if (number := _number(line)) is not None:
                return number
        window = min(4 * window, size) if window < size else 0
    return 0


def complete_until(path: Path) -> int:
    """Return the number of the last line if every line is intact and none is missing, else 0.

    The changes of the lines are not parsed: their digests say that they are as they were written.
    """
    last: int | None = None
    for line in _lines(path):
        number = _number(line)
        if number is None or (last is not None and number != last + 1):
            return 0
        last = number
    return last or 0


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except FileNotFoundError:
        return


def _line(entry: Entry) -> bytes:
    text = json.dumps([entry.number, entry.changes], separators=(",", ":")).encode()
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode() + b" " + text + b"\n"


def _entry(line: bytes) -> Entry | None:
    text = _text(line)
    if text is None:
        return None
    number, changes = json.loads(text)
    return Entry(number, [tuple(change) for change in changes])


def _number(line: bytes) -> int | None:
    text = _text(line)
    return None if text is None else int(text[1 : text.index(b",")])


def _text(line: bytes) -> bytes | None:
    """Return the JSON of a line, or None if the line is damaged or torn."""
    digest, _, text = line.rstrip(b"\n").partition(b" ")
    whole = line.endswith(b"\n") and hashlib.blake2b(text, digest_size=8).hexdigest().encode() == digest
    return text if whole else None


def replace(path: Path, entry: Entry) -> None:
    """Rewrite the log as one entry with the whole state. Call it while holding the database's write lock.

    Raises:
        OSError: the disk is full; the old log remains.
    """
    with appending(path):
        replace_file(path, _line(entry))
