"""The faults of a simulation: what strikes whom, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass

DRIVER_POINTS, WORKER_POINTS = 500, 60
"""Points up to which faults strike: about as many as a driver, or a worker, passes without one."""


@dataclass(frozen=True)
class Fault:
    """A fault that strikes a process at one of its points.

    Attributes:
        kind: of the fault.
        actor: name of the process.
        point: number of the point.
        seconds: that the fault lasts.
    """

    kind: str
    actor: str
    point: int
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.0f} s" if self.seconds else ""
        return f"{self.kind} {self.actor} at its point {self.point}{lasting}"


def drawn(rng: random.Random) -> list[Fault]:
    """Return the faults of a seed."""
    faults = [
        Fault("kill", f"driver-{number}", rng.randrange(DRIVER_POINTS))
        for number in range(1, rng.randrange(4) + 1)
    ]
    for number in rng.sample(range(1, 9), rng.randrange(3)):
        faults.append(Fault("kill", f"worker-{number}", rng.randrange(WORKER_POINTS)))
    return faults
