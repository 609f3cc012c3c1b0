"""What a process gets from its operating system: time, waiting, threads, and facts about other processes.

Code that takes a `System` can run in a simulation, which passes its own.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

import psutil

from orchestrator.errors import BadInput

DETACHED = "SWEEP_DETACHED"
"""Environment variable that is set in a detached driver, whose output goes to the log of its sweep."""

_ENDED = frozenset("ZXx")
"""States of a process that has ended and whose parent has not noticed yet."""

_PROCESS = uuid4().hex
"""Identifies this process where nothing identifies the boot of its machine."""

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Suspend the search for unreachable cycles, which the creation of many objects starts again and again.

    It takes a third of the time in which a million reports are read.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a process to end."""


def handled() -> tuple[signal.Signals, ...]:
    """Return the signals that may get a handler here.

    What a process was started to ignore it goes on ignoring: SIGHUP under `nohup`, SIGINT as a job that a
    script has put into the background.
    """
    return tuple(name for name in SIGNALS if signal.getsignal(name) is not signal.SIG_IGN)


_interruptions: list[int] = []
"""Signals that have interrupted this process before a driver caught them."""


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; a driver that begins in spite of it is told, as of any signal.

    A finaliser, or a library that is being imported, may have swallowed the exception.
    """
    _interruptions.append(number)
    raise KeyboardInterrupt


class Signals:
    """Catches SIGINT, SIGTERM and SIGHUP, unless ignored, in a pipe, which any thread can read.

    Python installs signal handlers in the main thread only: in any other one, `catch` leaves the handlers of
    the process as they are.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._wakeup = -1

    def catch(self) -> None:
        """Begin to catch signals."""
        if threading.current_thread() is not threading.main_thread():
            return
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        os.set_blocking(reading, False)
        self._pipe = (reading, writing)
        self._before = {name: signal.getsignal(name) for name in SIGNALS}
        self.install()
        # The interpreter writes the number of each signal at once, whatever the main thread is doing.
        self._wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def install(self) -> None:
        """Install the handlers again, which a library may have replaced; do nothing before `catch`."""
        if self._pipe is not None:
            for name, before in self._before.items():
                signal.signal(name, signal.SIG_IGN if before is signal.SIG_IGN else _noted)

    def caught(self) -> list[str]:
        """Return the names of the signals that have come since the last call."""
        if self._pipe is None:
            return []
        numbers = _interruptions[:1]  # a second one only repeats what had no effect
        _interruptions.clear()
        with suppress(BlockingIOError):
            numbers += os.read(self._pipe[0], 64)
        return [signal.Signals(number).name for number in numbers if number in set(SIGNALS)]

    def release(self) -> None:
        """Restore the handlers that stood before."""
        if self._pipe is not None:
            signal.set_wakeup_fd(self._wakeup)
            for name, handler in self._before.items():
                signal.signal(name, handler)
            for end in self._pipe:
                os.close(end)


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: the interpreter has written the signal's number to the pipe already."""


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

    def lock(self) -> threading.Lock:
        """Return a new lock."""
        return threading.Lock()

    def signals(self) -> Signals:
        """Return what catches the signals of this process."""
        return Signals()

    def print(self, line: str) -> None:
        """Write a line to the terminal."""
        print(line, flush=True)  # noqa: T201 - that is what it is for

    def exit(self, code: int) -> None:
        """End this process at once, whatever its threads are doing; never return."""
        os._exit(code)

    def pid(self) -> int:
        """Return the id of this process."""
        return os.getpid()

    def host(self) -> str:
        """Return the name of this machine."""
        return socket.gethostname()

    def is_detached(self) -> bool:
        """Return True if this process prints to a log instead of the terminal that has started it."""
        return DETACHED in os.environ

    def start_of(self, pid: int) -> int | None:
        """Return when a process started, or None if there is none of this id, or it has ended.

        On Linux it is counted in ticks since the boot, which no clock changes; elsewhere in milliseconds
        since the epoch.
        """
        try:
            # The second field, the name of the program in brackets, may hold spaces.
            state, *fields = self.read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
            return None if state in _ENDED else int(fields[18])
        except OSError:
            return self._start_by_clock(pid)

    def boot(self) -> str:
        """Return what identifies the boot from which `since_boot` counts: this process, if that is unknown.

        Processes that see the same boot compare their readings of that clock exactly.
        """
        try:
            return self.read(Path("/proc/sys/kernel/random/boot_id")).strip()
        except OSError:
            return _PROCESS

    def place(self) -> str:
        """Return what identifies the boot and the process namespace of this process; empty if unknown.

        Process ids that are read in one place mean nothing in another.
        """
        try:
            boot = self.read(Path("/proc/sys/kernel/random/boot_id")).strip()
            return f"{boot} {self.read(Path('/proc/self/ns/pid'))}"
        except OSError:
            return ""

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


@dataclass(frozen=True)
class ClockSetting:
    """A wall clock, by a clock of the same machine that is never set.

    Two readings of the wall clock are compared after both are converted to one setting.

    Attributes:
        boot: identifies the boot of the machine.
        booted_at: what the wall clock, as it is set, would have shown when the machine booted, in seconds
            since the epoch.
    """

    boot: str
    booted_at: float

    @classmethod
    def here(cls, system: System = System()) -> ClockSetting:
        """Return how the clock of this machine is set now."""
        return cls(system.boot(), system.time() - system.since_boot())

    @classmethod
    def read(cls, text: str) -> ClockSetting:
        """Return the setting that `write` wrote."""
        return cls(**json.loads(text))

    def write(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    def now(self, system: System = System()) -> float:
        """Return seconds since the epoch, by this setting even if the clock has been set since."""
        return self.booted_at + system.since_boot()

    def converted(self, at: float, to: ClockSetting) -> float:
        """Return what a clock with another setting would have shown at a time, in seconds since the epoch.

        Nothing connects the clocks of two machines, or of two boots: between them the time stays as it is.

        Args:
            at: time by this setting.
            to: the other setting.
        """
        return at - self.booted_at + to.booted_at if self.boot == to.boot else at


NICENESS = "SWEEP_DRIVER_NICENESS"
"""Environment variable: niceness of a driver and its process for MLflow. The service sets it."""

SERVICE_NICENESS = 15
"""Niceness of a driver of the service, as of Ray's workers: it mostly waits, and people do not like to."""


def niceness(default: int = 0) -> int:
    """Return the niceness of a driver.

    Args:
        default: if the environment does not say.

    Raises:
        BadInput: `SWEEP_DRIVER_NICENESS` is no whole number from 0 to 19.
    """
    text = os.environ.get(NICENESS) or str(default)
    if text.isdecimal() and int(text) <= 19:
        return int(text)
    raise BadInput(NICENESS, "must be a whole number from 0 to 19", repr(text), "0 changes nothing.")


def lower_priority(pid: int) -> None:
    """Give a process the niceness of this driver, and its session too, which must be its own.

    The niceness is that of the process's first thread and of what this starts from now on.
    """
    if not (wanted := niceness()):
        return
    with suppress(OSError):  # it has ended
        os.setpriority(os.PRIO_PROCESS, pid, max(wanted, os.getpriority(os.PRIO_PROCESS, pid)))
        lower_session(pid)


def lower_session(pid: int) -> None:
    """Give the session of a process, which must be its own, the niceness of the process.

    Linux may share processors between sessions first (autogroups), and then a session that has just begun has
    normal priority whatever that of its processes is: what `nice` starts would compete as if it were not.
    """
    with suppress(OSError):  # it has ended; or no autogroups, or too soon after another change
        if wanted := os.getpriority(os.PRIO_PROCESS, pid):
            Path(f"/proc/{pid}/autogroup").write_text(str(wanted))
