"""A lock on a file, released by the kernel when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, mode: int = 0o644) -> Iterator[None]:
    """Hold the lock on `path`, made if need be; wait for whoever holds it."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def migration_of(database: Path) -> Path:
    """Return the file that is locked while somebody makes or migrates an SQLite database of MLflow."""
    return database.with_name(f"{database.name}.lock")
