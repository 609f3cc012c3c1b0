"""The faults of a simulation: what strikes whom, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass

DRIVER_POINTS, WORKER_POINTS = 300, 40
"""Points up to which faults strike: about as many as a driver, or a worker, passes without one."""

DRIVER_COMMITS = 30
"""Commits after which a driver may be killed: about as many as it makes without a fault."""

KILL_AFTER_COMMIT = "kill after commit"
"""A kill of a driver between a commit and its next action, which few points are."""

WORLD_SECONDS = 40
"""Time up to which faults of no single process strike: about as long as a sweep takes without one."""

REQUEST = "request to try"
"""A request of a person to try a setting, which is no fault, but comes at any time."""

TRIAL_REQUEST = "request about a trial"
"""A request of a person to stop a trial, or to exempt it from early stopping, which is no fault either."""

TRAINING_SECONDS = range(3, 11)
"""Times at which attempts are likely to train and their driver to wait for a report."""

STEPS = (-3600.0, -5.0, 5.0, 3600.0)
"""Steps of a clock, in seconds."""


@dataclass(frozen=True)
class Severity:
    """Number and duration of faults.

    Attributes:
        drivers: Most drivers that are struck, one after the other.
        workers: Most workers that are struck.
        dooms: Most workers of a single trial that die, one after the other.
        pauses: Pauses of a process.
        outages: Outages of the store or MLflow.
        silences: Silences of the database.
        full: Full of a disk.
        delays: Longest ones of a message.
    """

    drivers: int
    workers: int
    dooms: int
    pauses: tuple[float, ...]
    outages: tuple[float, ...]
    silences: tuple[float, ...]
    full: tuple[float, ...]
    delays: tuple[float, ...]

    def world(self) -> dict[str, tuple[float, tuple[float, ...]]]:
        """Return the faults that strike no single process: the share of seeds with one, and its `seconds`."""
        return {
            "store vanishes": (0.1, self.outages),
            "database vanishes": (0.1, self.silences),
            "MLflow vanishes": (0.2, self.outages),
            "clock steps": (0.2, STEPS),
            "disk full": (0.1, self.full),
            "messages delayed": (0.1, self.delays),
            "messages repeated": (0.1, (0.0,)),
            "stop request": (0.1, (0.0,)),
            "gc": (0.1, (0.0,)),
            "power loss": (0.1, (0.0,)),
            "recover": (0.1, (0.0,)),
        }


@dataclass(frozen=True)
class Fault:
    """A fault that strikes a process at one of its points, or the world at a time.

    Attributes:
        kind: Kind of the fault.
        actor: Name of the process, or "world".
        point: Number of the process's point, or of its commit; for the world, seconds since the start.
        seconds: Seconds that the fault lasts; for a step of the clock, its size; for delayed messages, the
            longest delay.
    """

    kind: str
    actor: str
    point: float
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.0f} s" if self.seconds else ""
        unit = "commit" if self.kind == KILL_AFTER_COMMIT else "point"
        when = (
            f"at {self.point:g} s" if self.actor == "world" else f"{self.actor} at its {unit} {self.point:g}"
        )
        return f"{self.kind}, {when}{lasting}"


def requested(rng: random.Random, settings: int, trials: int) -> list[Fault]:
    """Return the requests of people, most of those to try settings before the last trial is proposed.

    Args:
        rng: Rng of the seed.
        settings: Number of settings to try.
        trials: Number of requests about single trials.
    """
    wanted = [Fault(REQUEST, "world", rng.randrange(WORLD_SECONDS // 2)) for _ in range(settings)]
    return [*wanted, *(Fault(TRIAL_REQUEST, "world", rng.randrange(WORLD_SECONDS)) for _ in range(trials))]


def drawn(rng: random.Random, severity: Severity, *, is_alone: bool) -> list[Fault]:
    """Return the faults of a seed.

    Args:
        rng: Rng of the seed.
        severity: Severity of the faults.
        is_alone: Whether the sweep has a single trial: then worker after worker dies once it has made
            progress, and nothing else happens.
    """
    if is_alone:
        return [Fault("doom", f"worker-{number + 1}", 0) for number in range(rng.randint(1, severity.dooms))]
    faults = []
    for number in range(1, rng.randint(0, severity.drivers) + 1):
        kind = rng.choice(("kill", KILL_AFTER_COMMIT, "pause", "signal"))
        seconds = rng.choice(severity.pauses) if kind == "pause" else 0.0
        last = DRIVER_COMMITS if kind == KILL_AFTER_COMMIT else DRIVER_POINTS
        faults.append(Fault(kind, f"driver-{number}", rng.randrange(last), seconds))
    for number in rng.sample(range(1, 9), rng.randint(0, severity.workers)):
        kind = rng.choice(("kill", "kill", "pause"))
        seconds = rng.choice(severity.pauses) if kind == "pause" else 0.0
        faults.append(Fault(kind, f"worker-{number}", rng.randrange(WORKER_POINTS), seconds))
    if rng.random() < 0.05:
        faults.append(Fault("lost answer", f"worker-{rng.randrange(1, 4)}", 0))
    for share in (0.3, 0.1):
        if rng.random() < share:
            faults.append(Fault("another driver", "world", rng.randrange(60)))
    for kind, (share, seconds_of) in severity.world().items():
        if rng.random() < share:
            faults.append(Fault(kind, "world", rng.randrange(WORLD_SECONDS), rng.choice(seconds_of)))
    # Only an outage that outlasts an attempt's deadline, and begins while it trains, could condemn it.
    is_silent = any(fault.kind == "database vanishes" for fault in faults)
    if rng.random() < 0.1 and not is_silent:
        at = rng.choice(TRAINING_SECONDS)
        faults.append(Fault("database vanishes", "world", at, max(severity.silences)))
    return faults
