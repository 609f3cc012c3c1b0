"""Service discovery by a file that names the service's process, and the service's health."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.ledger.holder import Holder
from orchestrator.system import System


@contextmanager
def announced(file: Path, system: System = System()) -> Iterator[Holder]:
    """Announce this process as the service in a file of mode 600, within a `with` block."""
    this = Holder.here(system)
    fresh = file.with_name(f"{file.name}.{this.pid}")
    fresh.touch(mode=0o600)
    fresh.write_text(this.write())
    fresh.replace(file)
    try:
        yield this
    finally:
        if _named(file) == this:
            file.unlink(missing_ok=True)


def knock(file: Path) -> None:
    """Make the service that a file names poll the ledger at once."""
    _knocks(file).touch(mode=0o600)


def knocked(file: Path) -> int:
    """Return a number that changes with every knock; 0 before the first one."""
    try:
        return _knocks(file).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _knocks(file: Path) -> Path:
    return file.with_suffix(".knock")


def running(file: Path, system: System = System()) -> Holder | None:
    """Return the living service that a file names, or None.

    A file of another user, or one that others can write, is ignored, and so is a process of another machine
    or container.
    """
    try:
        status = file.lstat()
    except OSError:
        return None
    is_own = stat.S_ISREG(status.st_mode) and status.st_uid in {os.geteuid(), 0}
    if not is_own or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    named = _named(file)
    return named if named is not None and named.is_near(system) and not named.is_dead(system) else None


def _named(file: Path) -> Holder | None:
    try:
        return Holder.read_file(file)
    except OSError:
        return None


MOST_SILENT_SECONDS = 60.0
"""Longest time between two rounds of a healthy service; on an idle machine it is one second."""


class Rounds:
    """The time of the last completed round; safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._completed_at = clock()

    def complete(self) -> None:
        """Record a completed round."""
        self._completed_at = self._clock()

    @property
    def silent_seconds(self) -> float:
        """Return the seconds since the last completed round, or since the start of the service."""
        return self._clock() - self._completed_at

    @property
    def are_late(self) -> bool:
        """Return True if the last round was completed more than `MOST_SILENT_SECONDS` ago."""
        return self.silent_seconds > MOST_SILENT_SECONDS
