"""The operating system of a process: time, waiting, threads, and facts about other processes.

A simulation passes its own `System` to the code that takes one.
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
"""Environment variable of a detached driver, whose output goes to the log of its sweep."""

_ENDED = frozenset("ZXx")
"""States in /proc of a process that has ended and was not waited for yet."""

_PROCESS = uuid4().hex
"""Random id of this process, used where the boot of its machine has no id."""

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Suspend cyclic garbage collection, which the creation of many objects triggers repeatedly.

    It would take a third of the time of reading a million reports.
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
    """Return the signals that may get a handler in this process.

    Signals that the process was started to ignore stay ignored: SIGHUP under `nohup`, SIGINT in a background
    job of a script.
    """
    return tuple(name for name in SIGNALS if signal.getsignal(name) is not signal.SIG_IGN)


_interruptions: list[int] = []
"""Signals that interrupted this process before a driver caught signals."""


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, and record the signal for a driver that starts nevertheless.

    A finaliser, or a library that is being imported, may swallow the exception.
    """
    _interruptions.append(number)
    raise KeyboardInterrupt


class Signals:
    """Catches SIGINT, SIGTERM and SIGHUP, unless ignored, in a pipe that any thread can read.

    Python installs signal handlers only in the main thread; in another thread, `catch` changes nothing.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._wakeup = -1

    def catch(self) -> None:
        """Start to catch signals."""
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
        """Return the names of the signals since the last call."""
        if self._pipe is None:
            return []
        numbers = _interruptions[:1]  # further ones only repeat the first, which had no effect
        _interruptions.clear()
        with suppress(BlockingIOError):
            numbers += os.read(self._pipe[0], 64)
        return [signal.Signals(number).name for number in numbers if number in set(SIGNALS)]

    def release(self) -> None:
        """Restore the earlier handlers."""
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
        """Return seconds of a clock that is never set."""
        return time.monotonic()

    def since_boot(self) -> float:
        """Return seconds of a clock that is never set and continues while the machine is suspended."""
        return time.clock_gettime(_BOOT_CLOCK)

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
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
        """Return a catcher of this process's signals."""
        return Signals()

    def print(self, line: str) -> None:
        """Write a line to the terminal."""
        print(line, flush=True)  # noqa: T201 - the purpose of this method

    def exit(self, code: int) -> None:
        """End this process at once, whatever its threads are doing."""
        os._exit(code)

    def pid(self) -> int:
        """Return the id of this process."""
        return os.getpid()

    def host(self) -> str:
        """Return the name of this machine."""
        return socket.gethostname()

    def is_detached(self) -> bool:
        """Return True if this process prints to a log instead of a terminal."""
        return DETACHED in os.environ

    def start_of(self, pid: int) -> int | None:
        """Return the start of a process, or None if it has ended or does not exist.

        On Linux the unit is ticks since the boot, which are independent of the clock; elsewhere milliseconds
        since the epoch.
        """
        try:
            # The second field, the name of the program in brackets, may contain spaces.
            state, *fields = self.read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
            return None if state in _ENDED else int(fields[18])
        except OSError:
            return self._start_by_clock(pid)

    def boot(self) -> str:
        """Return the id of the boot from which `since_boot` counts, or an id of this process if unknown.

        Processes with the same boot can compare their readings of that clock.
        """
        try:
            return self.read(Path("/proc/sys/kernel/random/boot_id")).strip()
        except OSError:
            return _PROCESS

    def place(self) -> str:
        """Return an id of the boot and the process namespace of this process; '' if unknown.

        Process ids are valid only within one place.
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
            OSError: The file does not exist.
        """
        return str(path.readlink()) if path.is_symlink() else path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class ClockSetting:
    """The setting of a wall clock, relative to a clock of the same machine that is never set.

    Two readings of the wall clock are compared after conversion to one setting.

    Attributes:
        boot: Id of the boot of the machine.
        booted_at: Time of the boot by the wall clock as it is set, in seconds since the epoch.
    """

    boot: str
    booted_at: float

    @classmethod
    def here(cls, system: System = System()) -> ClockSetting:
        """Return the current setting of this machine's clock."""
        return cls(system.boot(), system.time() - system.since_boot())

    @classmethod
    def read(cls, text: str) -> ClockSetting:
        """Return the setting that `write` has written."""
        return cls(**json.loads(text))

    def write(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    def now(self, system: System = System()) -> float:
        """Return seconds since the epoch by this setting, even if the clock has been set since."""
        return self.booted_at + system.since_boot()

    def converted(self, at: float, to: ClockSetting) -> float:
        """Return a time of this setting as another setting would have shown it, in seconds since the epoch.

        Clocks of two machines or two boots cannot be related, so the time stays unchanged between them.
        """
        return at - self.booted_at + to.booted_at if self.boot == to.boot else at


NICENESS = "SWEEP_DRIVER_NICENESS"
"""Environment variable, set by the service: niceness of a driver and its process for MLflow."""

SERVICE_NICENESS = 15
"""Niceness of the service's drivers and of processes for MLflow, as of Ray's workers.

So interactive work comes first, and the first report does not wait for the start of MLflow.
"""


def niceness(default: int = 0) -> int:
    """Return the niceness of a driver.

    Args:
        default: Niceness if the environment sets none.

    Raises:
        BadInput: `SWEEP_DRIVER_NICENESS` is not a whole number from 0 to 19.
    """
    text = os.environ.get(NICENESS) or str(default)
    if text.isdecimal() and int(text) <= 19:
        return int(text)
    raise BadInput(NICENESS, "must be a whole number from 0 to 19", repr(text), "0 changes nothing.")


def lower_priority(pid: int, default: int = 0) -> None:
    """Set a process and its session, which must be its own, to the niceness of a driver.

    The niceness applies to the process's first thread and to everything that it starts from now on.

    Args:
        pid: The process.
        default: Niceness if the environment sets none.
    """
    if not (wanted := niceness(default)):
        return
    with suppress(OSError):  # it has ended
        os.setpriority(os.PRIO_PROCESS, pid, max(wanted, os.getpriority(os.PRIO_PROCESS, pid)))
        lower_session(pid)


def lower_session(pid: int) -> None:
    """Set the session of a process, which must be its own, to the niceness of the process.

    Linux may first share processors between sessions (autogroups). A new session then has normal priority,
    whatever the niceness of its processes.
    """
    with suppress(OSError):  # it has ended; or no autogroups, or too soon after another change
        if wanted := os.getpriority(os.PRIO_PROCESS, pid):
            Path(f"/proc/{pid}/autogroup").write_text(str(wanted))
