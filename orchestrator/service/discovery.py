"""How commands find the service of a root: a file that names its process, trusted only while that lives."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.ledger.holder import Holder
from orchestrator.system import System


@contextmanager
def announced(file: Path, system: System = System()) -> Iterator[Holder]:
    """Name this process as the service, for the length of a `with` block, in a file of mode 600.

    Args:
        file: to be written.
        system: of this process.
    """
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
    """Let the service that a file names look at the ledger at once."""
    _knocks(file).touch(mode=0o600)


def knocked(file: Path) -> int:
    """Return a number that changes with every knock, and 0 before the first."""
    try:
        return _knocks(file).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _knocks(file: Path) -> Path:
    return file.with_suffix(".knock")


def running(file: Path, system: System = System()) -> Holder | None:
    """Return the living service that a file names, or None.

    A file of another user, or one that others can write, is ignored. So is one that names a process of
    another machine or container.

    Args:
        file: as `announced` wrote it.
        system: of this process.
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
