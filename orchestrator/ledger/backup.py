"""Backup of a SQLite ledger: for each sweep, a log of its commits beside the database.

SQLite keeps no checksums of its pages, and a flipped bit in its write-ahead log silently drops every later
commit. Each commit is therefore also appended to a log, as one line with a digest and a number:

    <sweeps>.backup/<sweep ID>.log      <digest> [number, [[table, key, changed columns or null], ...]]
    <sweeps>.backup/ledger.id           the ID of the ledger
    <sweeps>.backup/submissions/        one file for each submission, see `row_backup.py`
    <sweeps>.backup/users/              one file for each user
    <sweeps>.backup/decisions/          one file for each request, note, priority and owner

A compacted log starts with the whole state of the sweep instead, in one or more lines with the number of its
last commit: `[number, [...], lines of the state that follow]`.

A line is written after its commit, so a log that is ahead of its database proves that the database has lost
commits. Lines are flushed to disk together with the database. After a power failure either may be behind: the
ledger is rebuilt if the log leads further, else the log is rewritten.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import URL, Table

from orchestrator.ledger.connect import database_file
from orchestrator.ledger.tables import (
    NOTE,
    OWNER,
    PRIORITY,
    SERVICE_USER,
    SHELF,
    STOP_REQUEST,
    SUBMISSION,
    TRIAL_REQUEST,
    WANTED_SETTING,
)
from trainables.durable import flush_folder, make_folder, replace_file

DIGEST_LENGTH = 16
"""Characters of a line's digest."""

BLOCK = 1 << 16
"""Bytes that are read at first from the end of a log."""

ROW_FOLDERS: Mapping[Table, str] = {
    SUBMISSION: "submissions",
    SERVICE_USER: "users",
    STOP_REQUEST: "decisions/stop_request",
    WANTED_SETTING: "decisions/wanted_setting",
    TRIAL_REQUEST: "decisions/trial_request",
    NOTE: "decisions/note",
    SHELF: "decisions/shelf",
    PRIORITY: "decisions/priority",
    OWNER: "decisions/owner",
}
"""Tables whose rows have one file each in the backup, and the folders of these files."""

_log = logging.getLogger(__name__)

Change = tuple[str, Mapping[str, Any], Mapping[str, Any] | None]
"""Table, key and columns of a row: all columns if it is new, the changed ones, or None if it is deleted."""


@dataclass(frozen=True)
class Entry:
    """One commit of a sweep, or a part of its whole state.

    Attributes:
        number: Number of the commit, counted from 1, or of the last commit of a state.
        changes: Rows that were written.
        following: Number of entries with further parts of the same state.
    """

    number: int
    changes: Sequence[Change]
    following: int = 0


class LinePosition(NamedTuple):
    """Position of a line in a log: number of the commit and of the following parts of the same state."""

    number: int
    following: int


def backup_folder(address: URL) -> Path:
    """Return the folder of logs beside a SQLite ledger."""
    return database_file(address).with_suffix(".backup")


def has_backup(address: URL) -> bool:
    """Return True if the backup of a SQLite ledger holds anything but the ID of the ledger."""
    folder = backup_folder(address)
    rows = (row_folder(address, table).glob("*.json") for table in ROW_FOLDERS)
    return any(folder.glob("*.log")) or any(map(any, rows))


def row_folder(address: URL, table: Table) -> Path:
    """Return the folder with one file for each row of a table."""
    return backup_folder(address) / ROW_FOLDERS[table]


def backup_file(address: URL, sweep_id: str) -> Path:
    """Return the log of one sweep."""
    return backup_folder(address) / f"{sweep_id}.log"


def kept_id(address: URL) -> str | None:
    """Return the ID of a ledger in its backup, or None."""
    try:
        return _id_file(address).read_text() or None
    except FileNotFoundError:
        return None


def keep_id(address: URL, ledger_id: str) -> None:
    """Write the ID of a ledger to its backup, unless the backup has it."""
    if kept_id(address) == ledger_id:
        return
    file = _id_file(address)
    make_folder(file.parent)
    replace_file(file, ledger_id.encode())


def _id_file(address: URL) -> Path:
    return backup_folder(address) / "ledger.id"


class Log:
    """Log of a sweep, locked by this process.

    Args:
        path: Path of the log.
        file: The log, open and locked.
    """

    def __init__(self, path: Path, file: FileIO) -> None:
        self._path, self._file = path, file

    @property
    def length(self) -> int:
        """Length of the log in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def append(self, entry: Entry) -> None:
        """Write one line. If that fails, the log falls behind and the commit stands."""
        try:
            rest = memoryview(_line(entry))
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            _log.warning("The ledger's backup %s falls behind: %s", self._path, error)

    def empty(self) -> None:
        """Delete all lines."""
        self._file.truncate(0)

    def replace(self, fresh: Path, length: int) -> None:
        """Replace this log by one that `write` has written, and append the later lines.

        Args:
            fresh: Log that replaces this one.
            length: Length of this log when `fresh` held the state of the sweep.
        """
        with self._path.open("rb") as old, fresh.open("ab") as new:
            old.seek(length)
            shutil.copyfileobj(old, new)
            new.flush()
            os.fsync(new.fileno())
        fresh.replace(self._path)
        flush_folder(self._path.parent)


def drop_torn_start(path: Path) -> None:
    """Empty a log that holds only the torn line of a lost first commit, to which later lines would stick."""
    if path.exists() and path.stat().st_size:
        with locked(path) as log:
            if not newest(path):
                log.empty()


@contextmanager
def locked(path: Path) -> Iterator[Log]:
    """Open and lock the log of a sweep, so that its lines have the order of the commits."""
    while True:
        with _opened(path) as file:
            # The log itself is locked: a lock file beside it would cost a further open and close at each
            # commit. While this process waited, the log may have been replaced by another file.
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(path, file):
                yield Log(path, file)
                return


def _opened(path: Path) -> FileIO:
    # Without a buffer: one would keep the bytes of a failed write, and fail once more when it is closed.
    try:
        return path.open("ab", buffering=0)
    except FileNotFoundError:
        make_folder(path.parent)
        return path.open("ab", buffering=0)


def _is_at(path: Path, file: FileIO) -> bool:
    """Return True if the open file is still the one at `path`."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def flush(path: Path) -> None:
    """Make every line of a log survive a power failure, unless the log was removed."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        os.fsync(file.fileno())


def entries(path: Path) -> Iterator[Entry]:
    """Yield the entries up to the first line that is damaged, torn or out of sequence."""
    last: LinePosition | None = None
    for line in _lines(path):
        position = _position(line)
        if position is None or not _follows(position, last):
            return
        last = position
        yield _entry(line)


def newest(path: Path) -> int:
    """Return the number of the last intact line, even after a damaged one; 0 without an intact line.

    Only the end of the log is read, unless no line in it is intact.
    """
    size = path.stat().st_size if path.exists() else 0
    window = min(BLOCK, size)
    while window:
        with path.open("rb") as file:
            file.seek(size - window)
            lines = file.read().splitlines(keepends=True)
        for line in reversed(lines if window == size else lines[1:]):
            if (position := _position(line)) is not None:
                return position.number
        window = min(4 * window, size) if window < size else 0
    return 0


def complete_until(path: Path) -> int:
    """Return the number of the last line if every line is intact and none is missing, else 0."""
    last: LinePosition | None = None
    for line in _lines(path):
        position = _position(line)
        if position is None or not _follows(position, last):
            return 0
        last = position
    return last.number if last is not None and not last.following else 0


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except FileNotFoundError:
        return


def _follows(position: LinePosition, before: LinePosition | None) -> bool:
    """Return True if a line is the next commit, or the next part of a state."""
    if before is None:
        return True
    if before.following:
        return position == LinePosition(before.number, before.following - 1)
    return position == LinePosition(before.number + 1, 0)


def _line(entry: Entry) -> bytes:
    following = [entry.following] if entry.following else []
    text = json.dumps([entry.number, entry.changes, *following], separators=(",", ":")).encode()
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode() + b" " + text + b"\n"


def _entry(line: bytes) -> Entry:
    """Return the entry of an intact line."""
    number, changes, *following = json.loads(line.partition(b" ")[2])
    return Entry(number, [tuple(change) for change in changes], *following)


def _position(line: bytes) -> LinePosition | None:
    """Return the position of a line without parsing its changes, or None if it is damaged or torn."""
    # A view: a line of a rewritten log is long, and copying it takes as long as its digest.
    text = memoryview(line)[DIGEST_LENGTH + 1 : -1]
    digest = hashlib.blake2b(text, digest_size=8).hexdigest().encode()
    if not (line.startswith(digest + b" ") and line.endswith(b"\n")):
        return None
    following = 0 if line.endswith(b"]]\n") else int(line[line.rindex(b",") + 1 : -2])
    return LinePosition(int(line[DIGEST_LENGTH + 2 : line.index(b",")]), following)


def write(path: Path, entries: Iterable[Entry]) -> Path:
    """Write a log to a file beside `path`, flush it to disk, and return the file.

    Raises:
        OSError: The disk is full.
    """
    fresh = path.with_suffix(".new")
    make_folder(path.parent)
    with fresh.open("wb") as file:
        file.writelines(map(_line, entries))
        file.flush()
        os.fsync(file.fileno())
    return fresh
