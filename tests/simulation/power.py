"""Loss of power: a machine keeps what was flushed to its disk, and of everything else an arbitrary part.

Every flush of Python code passes `os.fsync`. SQLite flushes by itself before it moves rows from its
write-ahead log to the database, so only the log can lose rows: those behind its last flush.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from orchestrator.ledger.connect import SQLITE_PARTS

LOG_HEADER_BYTES = 32
"""Header of SQLite's write-ahead log; it changes when the log starts over."""


class Disk:
    """The disks of a simulation.

    Args:
        root: Root of the files of every machine.
        database: The file of a SQLite ledger.
        rng: Function that decides what is kept of what was not flushed.

    Attributes:
        on_flush: Function that is called when the ledger's write-ahead log has been flushed.
    """

    def __init__(self, root: Path, database: Path, rng: random.Random) -> None:
        self._root, self._database, self._rng = root, database, rng
        self.on_flush: Callable[[], None] = lambda: None
        self._log = database.with_name(f"{database.name}-wal")
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, frozenset[str]] = {}

    @contextmanager
    def watched(self, *, can_fail: bool) -> Iterator[None]:
        """Note every flush; what exists on entering is flushed.

        Args:
            can_fail: Whether `fail` may be called: then the content of what is flushed is noted, too.
        """
        for folder, _, names in os.walk(self._root) if can_fail else ():
            self._flushed_folder(Path(folder))
            for name in names:
                self._flushed_file(Path(folder, name))
        with patch.object(os, "fsync", self._flushed if can_fail else self._flushed_log):
            yield

    def _flushed_log(self, descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(self._log):  # noqa: PTH115 - hot
            self.on_flush()

    def _flushed(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115 - hot
        if path.is_dir():
            self._flushed_folder(path)
        elif path.exists():
            self._flushed_file(path)

    def _flushed_folder(self, folder: Path) -> None:
        self._names[folder.stat().st_ino] = frozenset(path.name for path in folder.iterdir())

    def _flushed_file(self, file: Path) -> None:
        self._contents[file.stat().st_ino] = file.read_bytes()
        if file == self._log:
            self.on_flush()

    def fail(self, root: Path, *, keep_database: bool) -> None:
        """Drop an arbitrary part of what was not flushed.

        Args:
            root: Root of the files of the machine.
            keep_database: Whether the ledger is on another machine.
        """
        own = {self._database.with_name(self._database.name + part) for part in SQLITE_PARTS}
        for folder, _, names in os.walk(root, topdown=False):
            for name in names:
                if (file := Path(folder, name)) not in own:
                    self._cut(file)
            self._forget_names(Path(folder))
        if not keep_database:
            self._cut_log()
            self._database.with_name(f"{self._database.name}-shm").unlink(missing_ok=True)
            self._replace_database()

    def _cut(self, file: Path) -> None:
        """Keep the flushed content of a file and a part of what was appended, or any part of a new file."""
        content = file.read_bytes()
        flushed = self._contents.get(file.stat().st_ino, b"")
        if not content.startswith(flushed):
            flushed = b""
        file.write_bytes(content[: self._rng.randint(len(flushed), len(content))])

    def _cut_log(self) -> None:
        if not self._log.exists():
            return
        content, flushed = self._log.read_bytes(), self._contents.get(self._log.stat().st_ino, b"")
        same = flushed[:LOG_HEADER_BYTES] == content[:LOG_HEADER_BYTES]
        self._log.write_bytes(content[: self._rng.randint(len(flushed) if same else 0, len(content))])

    def _replace_database(self) -> None:
        """Give the database another inode: SQLite shares the index of the log between the connections of a
        process to one inode, and those of the processes that were killed are still open.
        """
        copy = self._database.with_name(f"{self._database.name}-copy")
        shutil.copy2(self._database, copy)
        copy.replace(self._database)
        self._flushed_file(self._database)

    def _forget_names(self, folder: Path) -> None:
        """Drop some of the names that a folder has got since its last flush."""
        kept = self._names.get(folder.stat().st_ino, frozenset())
        for path in sorted(folder.iterdir()):
            if path.name not in kept and self._rng.random() < 0.5:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
