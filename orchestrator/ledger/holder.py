"""Holder of a lease: the process, and the fencing token of its writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import get_type_hints

from orchestrator.errors import Busy
from orchestrator.system import System


@dataclass(frozen=True)
class Holder:
    """A process that holds a lease, such as the driver of a sweep.

    Attributes:
        pid: Process ID.
        host: Name of the machine.
        place: Boot and process namespace of `pid`; empty if unknown.
        start: Start of the process, in a count of its machine that no setting of a clock changes.
        since: Time at which the process took the lease, seconds since the epoch.
        detached: Whether the process prints to the log of the sweep's drivers.
    """

    pid: int
    host: str
    place: str
    start: int
    since: float
    detached: bool = False

    @classmethod
    def here(cls, system: System = System()) -> Holder:
        """Return this process."""
        pid = system.pid()
        start = system.start_of(pid) or 0
        return cls(pid, system.host(), system.place(), start, system.time(), system.is_detached())

    @classmethod
    def read(cls, text: str) -> Holder | None:
        """Return the holder that `write` has written, or None for any other text."""
        try:
            values = json.loads(text)
            this = cls(**values)
        except (ValueError, TypeError):
            return None
        types = _types()
        return this if all(type(value) is types[name] for name, value in values.items()) else None

    @classmethod
    def read_file(cls, file: Path) -> Holder | None:
        """Return the holder in a file, or None if the file is damaged.

        Raises:
            OSError: The file cannot be read.
        """
        return cls.read(file.read_text(errors="replace"))

    def write(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_near(self, system: System = System()) -> bool:
        """Return True if the process is visible from here, so that its death can be detected."""
        return bool(self.place) and self.place == system.place()

    def is_dead(self, system: System = System()) -> bool:
        """Return True if the process is known to have ended."""
        return self.is_near(system) and system.start_of(self.pid) != self.start


@cache  # a driver that waits for a lease reads its holder again and again
def _types() -> Mapping[str, type]:
    return get_type_hints(Holder)


@dataclass(frozen=True)
class Token:
    """Fencing token: the proof that a process holds a lease.

    Attributes:
        sweep_id: ID of the sweep.
        number: Number that rises by one with each holder; the highest one is valid.
        holder: Process that took the lease.
    """

    sweep_id: str
    number: int
    holder: Holder


def busy(sweep_id: str, holder: Holder | None, system: System = System()) -> Busy:
    """Return the error that names the driver of a sweep, its machine and the age of its lease."""
    got = "another driver"
    if holder is not None:
        got = f"{holder}, for {max(0.0, system.time() - holder.since):.0f} s"
    return Busy(f"sweep {sweep_id}", "already has a driver", got, "Wait for that one, or `stop` it.")
