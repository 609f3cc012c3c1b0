"""Which process drives a sweep, and the token by which every write of that process is recognised."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.errors import Busy

_START_FIELD = 22 - 3
"""Position of the start time among the fields of /proc/<pid>/stat that follow the name of the program."""


@dataclass(frozen=True)
class Holder:
    """A process that drives a sweep.

    Attributes:
        pid: process id.
        host: name of the machine.
        place: identifies the boot and the process namespace that `pid` belongs to; empty if unknown.
        started: start of the process in ticks since the boot, which a step of the clock does not change; 0
            where the kernel does not say.
        since: when the process took the lease, seconds since the epoch.
    """

    pid: int
    host: str
    place: str
    started: int
    since: float

    @classmethod
    def here(cls) -> Holder:
        """Return this process."""
        pid = os.getpid()
        return cls(pid, socket.gethostname(), _place(), _start_ticks(pid) or 0, time.time())

    @classmethod
    def read(cls, text: str) -> Holder | None:
        """Return the holder that `write` wrote, or None for any other text."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def write(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_near(self) -> bool:
        """Return True if the process is visible from here, so that its death would be noticed."""
        return bool(self.place) and self.place == _place()

    def is_dead(self) -> bool:
        """Return True if the process is known to have ended, and False if that is not known."""
        if not self.is_near():
            return False
        return _start_ticks(self.pid) != self.started


@dataclass(frozen=True)
class Token:
    """The proof that a process holds the lease of a sweep; only taking a lease makes one.

    Attributes:
        sweep_id: of the sweep.
        number: rises by one at each taking, so that the holder with the highest number is the newest.
        holder: the process that took the lease.
    """

    sweep_id: str
    number: int
    holder: Holder


def busy(sweep_id: str, holder: Holder | None) -> Busy:
    """Return the refusal that names the driver of a sweep, its machine and how long it has held the lease."""
    got = "another driver"
    if holder is not None:
        got = f"{holder}, for {max(0.0, time.time() - holder.since):.0f} s"
    return Busy(f"sweep {sweep_id}", "one driver at a time runs it", got, "Wait for that one, or `stop` it.")


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start_ticks(pid: int) -> int | None:
    """Return when a process of this namespace started, in ticks since the boot, or None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    after_name = text.rpartition(")")[2].split()
    return None if after_name[0] in ("Z", "X") else int(after_name[_START_FIELD])
