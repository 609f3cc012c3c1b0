"""What a process gets from its operating system: time, waiting, threads, and facts about other processes.

Code that takes a `System` can run in a simulation, which passes its own.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class System:
    """The operating system of this machine."""

    def time(self) -> float:
        """Return seconds since the epoch, by a clock that may be set."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since some moment, by a clock that is never set."""
        return time.monotonic()

    def since_boot(self) -> float:
        """Return seconds since some moment, by a clock that goes on while the machine is suspended."""
        return time.clock_gettime(_BOOT_CLOCK)

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds."""
        time.sleep(seconds)

    def event(self) -> threading.Event:
        """Return a new event."""
        return threading.Event()

    def condition(self) -> threading.Condition:
        """Return a new condition."""
        return threading.Condition()

    def thread(self, run: Callable[[], object], name: str) -> threading.Thread:
        """Return a new thread, which ends with the process."""
        return threading.Thread(target=run, name=name, daemon=True)

    def pid(self) -> int:
        """Return the id of this process."""
        return os.getpid()

    def host(self) -> str:
        """Return the name of this machine."""
        return socket.gethostname()

    def start_of(self, pid: int) -> int | None:
        """Return when a process started, or None if there is none of this id.

        On Linux it is counted in ticks since the boot, which no clock changes; elsewhere in milliseconds
        since the epoch.
        """
        try:
            # The second field, the name of the program in brackets, may hold spaces.
            return int(self.read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[19])
        except OSError:
            return self._start_by_clock(pid)

    def _start_by_clock(self, pid: int) -> int | None:
        if sys.platform == "linux":
            return None
        try:
            return round(psutil.Process(pid).create_time() * 1000)
        except psutil.NoSuchProcess:
            return None

    def read(self, path: Path) -> str:
        """Return the text of a file about this machine or a process, or the target of a link.

        Raises:
            OSError: the file does not exist.
        """
        return str(path.readlink()) if path.is_symlink() else path.read_text(encoding="utf-8")
