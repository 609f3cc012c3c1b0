"""Who holds a lease, told so that another can see whether that process still lives."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from orchestrator.errors import Busy

# The kernel counts a start in ticks of 10 ms.
SAME_START_SECONDS = 0.05


@dataclass(frozen=True)
class Holder:
    """A process that drives a sweep.

    Attributes:
        pid: its number.
        host: the machine's name.
        place: the boot and the process namespace that the number belongs to; empty where there is no telling.
        started: when the process began, seconds since the epoch.
        since: when it took the lease, seconds since the epoch.
    """

    pid: int
    host: str
    place: str
    started: float
    since: float

    @classmethod
    def here(cls) -> Holder:
        """Return this process."""
        process = psutil.Process()
        return cls(process.pid, socket.gethostname(), _place(), process.create_time(), time.time())

    @classmethod
    def read(cls, text: str) -> Holder | None:
        """Return the holder that `write` wrote, or None for anything else."""
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
        """Tell whether the process can be seen from here, so that its death would be known."""
        return bool(self.place) and self.place == _place()

    def is_dead(self) -> bool:
        """Tell whether the process is known to be gone; False where there is no telling."""
        if not self.is_near():
            return False
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) > SAME_START_SECONDS
        except psutil.NoSuchProcess:
            return True


def busy(sweep_id: str, holder: Holder | None) -> Busy:
    """Return the refusal that names who holds a sweep, where and for how long."""
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
