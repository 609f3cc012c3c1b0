"""Points at file operations: Python announces each one to audit hooks before it happens.

A process is killed before a file operation by an exception in the hook, and so are the operations by which it
would clean up. A lock on a file that another simulated process holds makes the caller wait in simulated time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from tests.simulation.kernel import Kernel, Process
from tests.simulation.system import Machine

CHANGES = frozenset({"os.mkdir", "os.rename", "os.rmdir", "os.remove", "shutil.rmtree", "os.truncate"})
RETRY_SECONDS = 0.01


class Watch:
    """Announces the file operations on the machines of one simulation to its kernel.

    Args:
        kernel: Kernel of the simulation.
        machines: Each with a folder of its own.
        on_delete: Function that is called with each folder that a simulated process is about to delete.
    """

    _installed = False
    _current: Watch | None = None

    def __init__(self, kernel: Kernel, machines: Sequence[Machine], on_delete: Callable[[str], None]) -> None:
        self._kernel, self._machines = kernel, {str(machine.root): machine for machine in machines}
        self._on_delete = on_delete
        self._waiting = False
        self._owners: dict[int, Process] = {}

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
                if writes:
                    nameless = flags & os.O_TMPFILE == os.O_TMPFILE
                    watch._change(str(path), creates=nameless or not os.path.exists(path))  # noqa: PTH110 - hot
            elif event in CHANGES:
                watch._change(str(arguments[0]), creates=event == "os.mkdir")
                if event == "shutil.rmtree" and watch._kernel.current is not None:
                    watch._on_delete(str(arguments[0]))
            elif event == "fcntl.flock":
                watch._lock(*arguments)

    def _change(self, path: str, *, creates: bool) -> None:
        """Pass the point before a change; refuse a new file or folder on a full disk."""
        if self._kernel.current is None:  # power has failed, or returns
            return
        for root, machine in self._machines.items():
            if path.startswith(root):
                self._kernel.point()
                if creates and machine.is_full:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
                return

    def _lock(self, descriptor: int, operation: int) -> None:
        """Take a lock without blocking the whole simulation; the caller then takes it again, at once."""
        if self._waiting or self._kernel.current is None:
            return
        process = self._kernel.current.process
        self._owners[descriptor] = process
        process.on_end.append(lambda: self._unlock(descriptor, process))
        if operation in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            while not self._taken(descriptor, operation):
                self._kernel.sleep(RETRY_SECONDS)

    def _unlock(self, descriptor: int, process: Process) -> None:
        """Drop a lock as the operating system does when a process ends, unless its file is closed already."""
        if self._owners.get(descriptor) is process:
            with suppress(OSError):
                self._call(descriptor, fcntl.LOCK_UN)

    def _taken(self, descriptor: int, operation: int) -> bool:
        try:
            self._call(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _call(self, descriptor: int, operation: int) -> None:
        self._waiting = True
        try:
            fcntl.flock(descriptor, operation)
        finally:
            self._waiting = False


class PlainLock:
    """Stands in for `filelock.FileLock`, which refuses a second lock in a thread; all processes share one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> None:
        self._file = self._path.open("a")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        assert self._file is not None, "left after it was entered"
        self._file.close()
