"""The lease of a sweep in a SQLite ledger: a lock on a file, which the kernel drops with its process.

No clock takes part. The lock belongs to the open file, not to the process: it does not pass to children, in
which the file is closed once they start another program, nor does it end when something else reads the file.
"""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import TextIO

from orchestrator.ledger.holder import Holder, busy

# `holder` tries the lock for a moment; that must not pass for a driver.
GLANCES, GLANCE_SECONDS = 10, 0.05


class FileLease:
    """A lock file; its content names who holds it."""

    lost = False

    def __init__(self, path: Path, sweep_id: str) -> None:
        self._path, self._sweep_id = path, sweep_id
        self._file: TextIO | None = None

    def take(self) -> None:
        """Take the lock.

        Raises:
            Busy: a living process holds it.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+")
        for _ in range(GLANCES):
            if _locked(file, fcntl.LOCK_EX):
                self._file = file
                file.truncate(0)
                file.write(Holder.here().write())
                file.flush()
                return
            if self._driver(file):
                break
            time.sleep(GLANCE_SECONDS)
        file.close()
        raise busy(self._sweep_id, Holder.read(self._path.read_text()))

    def _driver(self, file: TextIO) -> Holder | None:
        """Return the driver that holds the lock; None for a glance, and for one that has no name yet."""
        if _locked(file, fcntl.LOCK_SH):
            fcntl.flock(file, fcntl.LOCK_UN)
            return None
        named = Holder.read(self._path.read_text())
        return None if named is None or named.is_dead() else named

    def release(self) -> None:
        """Give the lock back."""
        assert self._file is not None, "a lease is released once"
        self._file.close()
        self._file = None


def holder(path: Path) -> Holder | None:
    """Return who holds the lock at `path`, or None if nobody does."""
    try:
        with path.open() as file:
            return None if _locked(file, fcntl.LOCK_SH) else Holder.read(file.read())
    except FileNotFoundError:
        return None


def _locked(file: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
