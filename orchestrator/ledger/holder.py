"""Which process drives a sweep, and the token by which every write of that process is recognised."""

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
    """A process that drives a sweep.

    Attributes:
        pid: process id.
        host: name of the machine.
        place: identifies the boot and the process namespace that `pid` belongs to; empty if unknown.
        start: of the process, as its machine counts it: no clock that can be set takes part.
        since: when the process took the lease, seconds since the epoch.
        detached: whether the process prints to the log of the sweep's drivers.
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
        """Return the holder that `write` wrote, or None for any other text."""
        try:
            values = json.loads(text)
            this = cls(**values)
        except (ValueError, TypeError):
            return None
        types = _types()
        return this if all(type(value) is types[name] for name, value in values.items()) else None

    @classmethod
    def read_file(cls, file: Path) -> Holder | None:
        """Return the holder that a file names, or None if it has been damaged.

        Raises:
            OSError: the file cannot be read.
        """
        return cls.read(file.read_text(errors="replace"))

    def write(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_near(self, system: System = System()) -> bool:
        """Return True if the process is visible from here, so that its death would be noticed."""
        return bool(self.place) and self.place == system.place()

    def is_dead(self, system: System = System()) -> bool:
        """Return True if the process is known to have ended, and False if that is not known."""
        return self.is_near(system) and system.start_of(self.pid) != self.start


@cache  # a driver that waits for a lease reads its holder again and again
def _types() -> Mapping[str, type]:
    return get_type_hints(Holder)


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


def busy(sweep_id: str, holder: Holder | None, system: System = System()) -> Busy:
    """Return the refusal that names the driver of a sweep, its machine and how long it has held the lease."""
    got = "another driver"
    if holder is not None:
        got = f"{holder}, for {max(0.0, system.time() - holder.since):.0f} s"
    return Busy(f"sweep {sweep_id}", "one driver at a time runs it", got, "Wait for that one, or `stop` it.")
