"""The faults of a simulation: what strikes whom, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.simulation.sweeps import Variant

DRIVER_POINTS, WORKER_POINTS = 300, 40
"""Points up to which faults strike: about as many as a driver, or a worker, passes without one."""

WORLD_SECONDS = 40
"""Time up to which faults of no single process strike: about as long as a sweep takes without one."""

PAUSES = (5.0, 30.0, 60.0, 120.0)
OUTAGES = (3.0, 30.0, 120.0, 900.0)
FULL = (3.0, 30.0, 120.0)
LATENCIES = (2.0, 10.0, 30.0)
STEPS = (-3600.0, -5.0, 5.0, 3600.0)


@dataclass(frozen=True)
class Fault:
    """A fault that strikes a process at one of its points, or the world at a time.

    Attributes:
        kind: of the fault.
        actor: name of the process, or "world".
        point: number of the process's point; for the world, seconds since the start.
        seconds: that the fault lasts; for a step of the clock, its size; for delayed messages, the longest
            delay.
    """

    kind: str
    actor: str
    point: float
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.0f} s" if self.seconds else ""
        when = (
            f"at {self.point:g} s" if self.actor == "world" else f"{self.actor} at its point {self.point:g}"
        )
        return f"{self.kind}, {when}{lasting}"


WORLD: dict[str, tuple[float, tuple[float, ...]]] = {
    "store vanishes": (0.1, OUTAGES),
    "database vanishes": (0.1, OUTAGES),
    "MLflow vanishes": (0.2, OUTAGES),
    "clock steps": (0.2, STEPS),
    "disk full": (0.1, FULL),
    "messages delayed": (0.1, LATENCIES),
    "messages repeated": (0.1, (0.0,)),
    "stop request": (0.1, (0.0,)),
    "gc": (0.1, (0.0,)),
}
"""Kinds of faults that strike no single process: the share of seeds that get one, and its `seconds`."""


def drawn(rng: random.Random, variant: Variant) -> list[Fault]:
    """Return the faults of a seed.

    Args:
        rng: of the seed.
        variant: that runs. If it is one long trial, worker after worker dies once it has made progress.
    """
    if variant.is_long:
        return [Fault("doom", f"worker-{number}", 0) for number in range(1, rng.randrange(1, 6))]
    faults = []
    for number in range(1, rng.randrange(1, 4)):
        kind = rng.choice(("kill", "kill", "pause", "signal"))
        seconds = rng.choice(PAUSES) if kind == "pause" else 0.0
        faults.append(Fault(kind, f"driver-{number}", rng.randrange(DRIVER_POINTS), seconds))
    for number in rng.sample(range(1, 9), rng.randrange(3)):
        kind = rng.choice(("kill", "kill", "pause"))
        seconds = rng.choice(PAUSES) if kind == "pause" else 0.0
        faults.append(Fault(kind, f"worker-{number}", rng.randrange(WORKER_POINTS), seconds))
    if rng.random() < 0.05:
        faults.append(Fault("lost answer", f"worker-{rng.randrange(1, 4)}", 0))
    for share in (0.3, 0.1):
        if rng.random() < share:
            faults.append(Fault("another driver", "world", rng.randrange(60)))
    for kind, (share, seconds_of) in WORLD.items():
        if rng.random() < share:
            faults.append(Fault(kind, "world", rng.randrange(WORLD_SECONDS), rng.choice(seconds_of)))
    return faults
