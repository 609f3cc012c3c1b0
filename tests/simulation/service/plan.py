"""Plan of a simulated run of the service: actions of people, and faults."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.simulation.faults import KILL_AFTER_COMMIT, Fault

POISON = 99
"""Crashes of a sweep whose drivers crash until a person has repaired it."""

SERVICE_POINTS, SERVICE_COMMITS = 1200, 30
"""Points and commits up to which faults strike a service: about as many as it passes in two minutes."""

DRIVER_POINTS, PERSON_POINTS = 60, 25
"""Points up to which faults strike a driver or the command of a person."""

SECONDS = 90
"""Time up to which people act and faults of no single process strike."""

OUTAGES = (3.0, 30.0, 60.0, 120.0)
"""Seconds for which the database is away; a lease lasts 45."""

STEPS = (-3600.0, 5.0, 3600.0)
"""Steps of a clock, in seconds."""


@dataclass(frozen=True)
class Job:
    """A sweep, and what people do with it.

    Attributes:
        sweep_id: Id of the sweep.
        owner: Who submits it.
        reports: Reports until it is complete.
        crashes: How many of its drivers crash before they report; `POISON` for all until it is repaired.
        submitted_at: Seconds since the beginning.
        stopped_at: Time when a person pauses it, in seconds since the beginning, or None.
        resumed_after: Seconds after which it is resumed, or None for never.
        is_resubmitted: Whether it is resumed by submitting it again.
    """

    sweep_id: str
    owner: str
    reports: int
    crashes: int
    submitted_at: float
    stopped_at: float | None
    resumed_after: float | None
    is_resubmitted: bool

    @property
    def stays_stopped(self) -> bool:
        """Return True if nobody resumes the sweep once it is stopped."""
        return self.stopped_at is not None and self.resumed_after is None


@dataclass(frozen=True)
class Plan:
    """Plan of one run.

    Attributes:
        is_server: Whether the ledger is on a server, which services and drivers on two machines reach.
        jobs: Jobs of people.
        ill_until: Ill until until this time every driver crashes when it starts, in seconds; 0 for never.
    """

    is_server: bool
    jobs: tuple[Job, ...]
    ill_until: float


def drawn_plan(rng: random.Random) -> Plan:
    """Return the plan of a seed."""
    is_ill = rng.random() < 0.2
    count = 3 if is_ill else rng.randint(1, 3)
    return Plan(rng.random() < 0.5, tuple(_job(rng, number) for number in range(count)), 100.0 * is_ill)


def _job(rng: random.Random, number: int) -> Job:
    return Job(
        sweep_id=f"sweep-{number}",
        owner=rng.choice(("ada", "ben")),
        reports=rng.randint(2, 4),
        crashes=rng.choice((0, 0, 0, 0, 1, 3, POISON)),
        submitted_at=rng.uniform(0.0, 10.0),
        stopped_at=rng.uniform(1.0, SECONDS) if rng.random() < 0.4 else None,
        resumed_after=rng.choice((None, 0.5, 20.0, 70.0)),
        is_resubmitted=rng.random() < 0.5,
    )


def drawn_faults(rng: random.Random) -> list[Fault]:
    """Return the faults of a seed: two services are struck, and the machine starts again twice, at most."""
    faults = []
    for number in range(1, rng.randint(0, 2) + 1):
        kind = rng.choice(("kill", "kill", KILL_AFTER_COMMIT, "pause", "signal"))
        last = SERVICE_COMMITS if kind == KILL_AFTER_COMMIT else SERVICE_POINTS
        # Half of the kills strike early, where a service takes its lease and finds what is there.
        point = rng.randrange(last if rng.random() < 0.5 else last // 10)
        faults.append(Fault(kind, f"serve-{number}", point, 60.0 if kind == "pause" else 0.0))
    for number in rng.sample(range(1, 5), rng.randint(0, 2)):
        kind = rng.choice(("kill", "kill", "pause", "signal"))
        seconds = 30.0 if kind == "pause" else 0.0
        faults.append(Fault(kind, f"driver-{number}", rng.randrange(DRIVER_POINTS), seconds))
    for number in rng.sample(range(1, 5), rng.randint(0, 2)):
        faults.append(Fault("kill", f"person-{number}", rng.randrange(PERSON_POINTS)))
    if rng.random() < 0.3:
        faults.append(Fault("database vanishes", "world", rng.randrange(SECONDS), rng.choice(OUTAGES)))
    for share in (0.3, 0.1):
        if rng.random() < share:
            faults.append(Fault("power loss", "world", rng.randrange(SECONDS)))
    if rng.random() < 0.1:
        faults.append(Fault("clock steps", "world", rng.randrange(SECONDS), rng.choice(STEPS)))
    if rng.random() < 0.2:
        faults.append(Fault("another service", "world", rng.randrange(SECONDS)))
    return faults
