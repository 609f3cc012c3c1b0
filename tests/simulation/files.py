"""Points at file operations: Python announces each one to audit hooks before it happens.

A process is killed before a file operation by an exception in the hook, and so are the operations by which it
would clean up. A lock on a file that another simulated process holds makes the caller wait in simulated time.
"""

from __future__ import annotations

import fcntl
import os
import sys
from typing import Any

from tests.simulation.kernel import Kernel

CHANGES = frozenset({"os.mkdir", "os.rename", "os.rmdir", "os.remove", "shutil.rmtree", "os.truncate"})
RETRY_SECONDS = 0.01


class Watch:
    """Announces the file operations of one simulation, under one folder, to its kernel."""

    _installed = False
    _current: Watch | None = None

    def __init__(self, kernel: Kernel, root: str) -> None:
        self._kernel, self._root = kernel, root
        self._waiting = False

    def __enter__(self) -> Watch:
        if not Watch._installed:
            sys.addaudithook(Watch._heard)
            Watch._installed = True
        Watch._current = self
        return self

    def __exit__(self, *_: object) -> None:
        Watch._current = None

    @staticmethod
    def _heard(event: str, arguments: tuple[Any, ...]) -> None:
        watch = Watch._current
        if watch is not None:
            if event == "open":
                path, mode, flags = arguments
                writes = flags & (os.O_WRONLY | os.O_RDWR) if flags else mode and mode[0] in "wax"
                if writes and str(path).startswith(watch._root):
                    watch._kernel.point()
            elif event in CHANGES:
                if str(arguments[0]).startswith(watch._root):
                    watch._kernel.point()
            elif event == "fcntl.flock":
                watch._lock(*arguments)

    def _lock(self, descriptor: int, operation: int) -> None:
        """Take a lock without blocking the whole simulation; the caller then takes it again, at once."""
        if operation != fcntl.LOCK_EX or self._waiting or self._kernel.current is None:
            return
        while not self._taken(descriptor):
            self._kernel.sleep(RETRY_SECONDS)

    def _taken(self, descriptor: int) -> bool:
        self._waiting = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            self._waiting = False
        return True
