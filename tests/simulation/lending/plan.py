"""Plan of a simulated run of warm workers: actions of drivers, and faults."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.simulation.faults import Fault

DRIVER_POINTS, WORKER_POINTS = 120, 12
"""Points up to which faults strike: about as many as a driver, or a worker, passes without one."""

CALLS = {
    "claim": 5,
    "return_unused": 4,
    "make_room": 3,
    "begin": 4,
    "__ray_ready__": 4,
    "train": 14,
    "reset": 4,
    "stop": 6,
    "run": 2,
}
"""Calls whose messages faults strike, and up to which call of a run."""

DELAYS = (0.5, 1.5, 4.0, 8.0)
"""Seconds by which a message is late; a claim is withdrawn after one second."""

HANGS = (6.0, 14.0, 21.0, 22.0, 40.0)
"""Seconds that a worker takes to stop; Tune kills one that takes 10 at the end of a sweep, or 20 before."""

PAUSES = (2.0, 6.0)
"""Of a driver or a worker, in seconds."""


@dataclass(frozen=True)
class Trial:
    """A trial.

    Attributes:
        reports: Reports until it is complete.
        stopped_after: Reports after which the stopping rule ends it, or None.
    """

    reports: int
    stopped_after: int | None


@dataclass(frozen=True)
class Sweep:
    """A sweep of a driver.

    Attributes:
        id: Id of the sweep.
        trials: Trials of it.
        at_once: How many trials run at once.
        errand: Whether work is done in a worker before the sweep.
        pause: Seconds after the sweep.
    """

    id: str
    trials: tuple[Trial, ...]
    at_once: int
    errand: bool
    pause: float


@dataclass(frozen=True)
class Drive:
    """Actions of one driver, in one process or, after a kill, in several.

    Attributes:
        name: Name of the driver.
        key: Key of the code and the environment of its workers.
        begins_at: Seconds since the beginning.
        sweeps: One after the other.
        anew: Whether each sweep has a process of its own.
    """

    name: str
    key: str
    begins_at: float
    sweeps: tuple[Sweep, ...]
    anew: bool


@dataclass(frozen=True)
class Plan:
    """Plan of one run.

    Attributes:
        has_gpu: Whether workers hold a GPU: then they are claimed one after the other.
        idle: Seconds for which a worker stays that nobody uses.
        processors: Processors of the machine; so many idle workers of other code are let be.
        latency: Longest time that a message takes, in seconds.
        start: Longest time that a process takes to start.
        interval: Longest time between two reports.
        drives: Drives of the drivers.
    """

    has_gpu: bool
    idle: float
    processors: int
    latency: float
    start: float
    interval: float
    drives: tuple[Drive, ...]


def drawn_plan(rng: random.Random) -> Plan:
    """Return the plan of a seed."""
    return Plan(
        has_gpu=rng.random() < 0.3,
        idle=rng.choice((3.0, 30.0, 30.0)),
        processors=rng.choice((0, 1, 2)),
        latency=rng.choice((0.02, 0.02, 0.3, 1.5)),
        start=rng.choice((0.5, 3.0, 8.0)),
        interval=rng.choice((0.3, 2.0)),
        drives=tuple(_drive(rng, number) for number in range(rng.choice((2, 2, 3)))),
    )


def _drive(rng: random.Random, number: int) -> Drive:
    name = f"driver-{number + 1}"
    return Drive(
        name,
        key=rng.choice("aaab"),
        begins_at=rng.choice((0.0, rng.uniform(0.0, 5.0), rng.uniform(0.0, 15.0))),
        sweeps=tuple(_sweep(rng, f"s{number + 1}{letter}") for letter in "xy"[: rng.choice((1, 1, 2))]),
        anew=rng.random() < 0.5,
    )


def _sweep(rng: random.Random, sweep_id: str) -> Sweep:
    return Sweep(
        sweep_id,
        trials=tuple(_trial(rng) for _ in range(rng.randint(1, 3))),
        at_once=rng.choice((1, 2)),
        errand=rng.random() < 0.35,
        pause=rng.choice((0.05, 1.0, 6.0)),
    )


def _trial(rng: random.Random) -> Trial:
    reports = rng.randint(1, 3)
    return Trial(reports, rng.randint(1, reports) if rng.random() < 0.3 else None)


def drawn_faults(rng: random.Random) -> list[Fault]:
    """Return the faults of a seed: four at most, and none in a seventh of the seeds."""
    return [_fault(rng) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4)))]


def _fault(rng: random.Random) -> Fault:
    kind = rng.choice(
        ("late call", "late call", "late answer", "lost", "lost", "process", "process", "other")
    )
    if kind == "process":
        kind = rng.choice(("kill", "kill", "pause"))
        seconds = rng.choice(PAUSES) if kind == "pause" else 0.0
        if rng.random() < 0.5:
            return Fault(kind, f"driver-{rng.randint(1, 3)}", rng.randrange(DRIVER_POINTS), seconds)
        return Fault(kind, f"worker-{rng.randint(1, 4)}", rng.randrange(WORKER_POINTS), seconds)
    if kind == "other":
        kind = rng.choice(("hang", "late kill", "memory short"))
        if kind == "memory short":
            return Fault(kind, "world", rng.randrange(20), rng.choice((2.0, 10.0)))
        seconds = rng.choice(HANGS if kind == "hang" else DELAYS)
        return Fault(kind, "a stop" if kind == "hang" else "kill", rng.randrange(5), seconds)
    method = rng.choice(("claim", "claim", "return_unused", "stop", "run", *CALLS))
    point, seconds = rng.randrange(CALLS[method]), rng.choice(DELAYS)
    if kind == "lost":
        kind = rng.choice(("lost call", "lost answer"))
    return Fault(kind, method, point, seconds)
