"""The sweeps that a simulated pool receives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.sharing.rows import UNIT, Owner, PoolNode, PriorityClass


@dataclass(frozen=True)
class Sweep:
    """A sweep that is submitted during the simulation.

    Attributes:
        name: unique.
        owner: name of the owner.
        submitted: in seconds after the start.
        trials: seconds of work of each trial.
        cpu: of a trial, in 1/10,000 of a core.
        slots: trials on one device; 0 without a GPU.
        concurrent: most trials at once.
        priority_class: of the sweep.
        crashes: seconds at which its driver is killed; it is started again after `Scenario.recovery`.
    """

    name: str
    owner: str
    submitted: float
    trials: tuple[float, ...]
    cpu: int = UNIT
    slots: int = 0
    concurrent: int | None = None
    priority_class: PriorityClass = "normal"
    crashes: tuple[float, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """A pool and its load.

    Attributes:
        name: for the table.
        nodes: of the pool.
        owners: with weights and quotas.
        sweeps: in any order.
        hours: that are simulated.
        restart: seconds from a launch to the first step of a trial.
        interval: seconds of work between two reports.
        recovery: seconds until a killed driver is started again.
    """

    name: str
    nodes: tuple[PoolNode, ...]
    owners: tuple[Owner, ...]
    sweeps: tuple[Sweep, ...]
    hours: float = 2.0
    restart: float = 15.0
    interval: float = 30.0
    recovery: float = 60.0


def places(count: int, sweeps: int, seed: int = 0) -> Scenario:
    """Return a pool of equal places, one trial each, with sweeps of owners of equal weight.

    Half of the sweeps are submitted at the start, the others within the first 90 minutes. Trials work for 12
    minutes on average. In all, there is more work than the pool can do.
    """
    chance = random.Random(f"{count} {sweeps} {seed}")
    owners = tuple(Owner(f"owner-{k}") for k in range(max(3, sweeps // 4)))
    loads = tuple(
        Sweep(
            name=f"sweep-{k:02}",
            owner=chance.choice(owners).name,
            submitted=0.0 if k < sweeps // 2 else chance.uniform(0, 5_400),
            trials=tuple(chance.expovariate(1 / 720) + 60 for _ in range(chance.randint(2, 4 * count))),
            concurrent=chance.randint(1, count),
        )
        for k in range(sweeps)
    )
    size = min(count, 8)
    nodes = tuple(PoolNode(f"node-{k}", size * UNIT) for k in range(count // size))
    return Scenario(f"{count} places, {sweeps} sweeps", nodes, owners, loads)


def with_crashes(scenario: Scenario, seed: int = 0) -> Scenario:
    """Return a scenario in which every driver is killed once an hour on average."""
    chance = random.Random(seed)

    def killed(sweep: Sweep) -> Sweep:
        return replace(sweep, crashes=tuple(sorted(chance.uniform(0, 7_200) for _ in range(2))))

    sweeps = tuple(killed(sweep) for sweep in scenario.sweeps)
    return replace(scenario, name=f"{scenario.name}, drivers killed", sweeps=sweeps)


def with_classes(scenario: Scenario, seed: int = 0) -> Scenario:
    """Return a scenario in which a fifth of the sweeps is `urgent`, and a fifth `idle`."""
    chance = random.Random(seed)
    kinds: Sequence[PriorityClass] = ("urgent", "normal", "normal", "normal", "idle")
    sweeps = tuple(replace(sweep, priority_class=chance.choice(kinds)) for sweep in scenario.sweeps)
    return replace(scenario, name=f"{scenario.name}, three classes", sweeps=sweeps)


def with_devices(scenario: Scenario, seed: int = 0) -> Scenario:
    """Return a scenario on GPUs: each place is a device with 4 cores for 1, 2 or 4 trials of a sweep."""
    chance = random.Random(seed)
    nodes = tuple(PoolNode(node.name, 4 * node.cpu, node.cpu // UNIT) for node in scenario.nodes)
    sweeps = tuple(replace(sweep, slots=chance.choice([1, 1, 2, 4])) for sweep in scenario.sweeps)
    return replace(scenario, name=f"{scenario.name}, on GPUs", nodes=nodes, sweeps=sweeps)


def turns(places: int = 2, owners: int = 5, hours: float = 4.0) -> Scenario:
    """Return a pool with fewer places than owners, each with one endless sweep."""
    sweeps = tuple(
        Sweep(f"sweep-{k}", f"owner-{k}", 60.0 * k, tuple([600.0] * 60), concurrent=places)
        for k in range(owners)
    )
    rows = tuple(Owner(f"owner-{k}") for k in range(owners))
    return Scenario(
        f"{places} places, {owners} owners", (PoolNode("node", places * UNIT),), rows, sweeps, hours
    )
