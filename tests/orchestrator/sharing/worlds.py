"""Pools, owners and claims to share, drawn at random.

A device is one unit here, so that the figures are small, and 10,000 in a pool of the service.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from orchestrator.sharing.pool_rows import UNIT, Owner, PoolClaim, PoolNode, Share


@dataclass(frozen=True)
class World:
    """What `fill` reads."""

    nodes: tuple[PoolNode, ...]
    owners: tuple[Owner, ...]
    claims: tuple[PoolClaim, ...]

    def claim(self, sweep: str) -> PoolClaim:
        return next(claim for claim in self.claims if claim.sweep == sweep)


def cpu_claim(sweep: str, owner: str, want: int, **more: object) -> PoolClaim:
    """Return a claim of trials of one core each."""
    return PoolClaim(
        **(
            {"sweep": sweep, "owner": owner, "created": 0.0, "cpu": UNIT, "slots": 0, "want": want, "gpu": 1}
            | more
        )
    )  # type: ignore[arg-type]


def resized(claim: PoolClaim, gpu: int, nodes: int) -> PoolClaim:
    """Return the claim with other GPUs of a trial or an engine; on several nodes if it has no engine."""
    return replace(claim, gpu=gpu, nodes=nodes if claim.slots < 2 else 1)


def gpu_claim(sweep: str, owner: str, want: int, slots: int = 1, **more: object) -> PoolClaim:
    """Return a claim of trials of one core and 1/`slots` of a GPU each."""
    return cpu_claim(sweep, owner, want, slots=slots, **more)


@st.composite
def worlds(draw: st.DrawFn, *, classes: tuple[str, ...] = ("normal",), quotas: bool = False) -> World:
    """Draw small pools of unequal nodes, with sweeps of unequal bundles."""
    nodes = tuple(
        PoolNode(f"n{k}", draw(st.sampled_from([1, 2, 4, 6, 16])) * UNIT, draw(st.integers(0, 4)))
        for k in range(draw(st.integers(1, 4)))
    )
    names = [f"o{k}" for k in range(draw(st.integers(1, 4)))]
    weights = st.sampled_from([1, UNIT // 2, UNIT, UNIT, 2 * UNIT, 30_001])
    share = st.sampled_from([0, 1_000, 5_000, UNIT]) if quotas else st.just(UNIT)
    owners = tuple(
        Owner(name, weight=draw(weights), most_share=draw(share), used=draw(st.integers(0, 3_000)))
        for name in names
    )
    claims = tuple(
        cpu_claim(
            f"s{k}",
            draw(st.sampled_from(names)),
            created=float(draw(st.integers(0, 3))),
            cpu=draw(st.sampled_from([2_500, UNIT, UNIT, 3 * UNIT])),
            slots=draw(st.sampled_from([0, 0, 1, 1, 2, 3, 8])),
            want=draw(st.integers(0, 12)),
            priority_class=draw(st.sampled_from(classes)),
            weight=draw(weights),
        )
        for k in range(draw(st.integers(1, 7)))
    )
    return World(nodes, owners, claims)


def random_world(seed: int) -> World:
    """Return one of endlessly many worlds of all classes and quotas."""
    chance = random.Random(seed)
    nodes = tuple(
        PoolNode(f"n{k}", chance.choice([1, 2, 4, 6, 16, 64]) * UNIT, chance.choice([0, 0, 1, 2, 4, 8]))
        for k in range(chance.randint(1, 6))
    )
    names = [f"o{k}" for k in range(chance.randint(1, 6))]
    owners = tuple(
        Owner(
            name,
            weight=chance.choice([1, UNIT // 2, UNIT, UNIT, 2 * UNIT, 30_001]),
            most_share=chance.choice([UNIT, UNIT, UNIT, 0, 1_000, 5_000]),
            most_gpu_hours=chance.choice([None, None, 1]),
            used=chance.randint(0, 3_000),
            week_gpu_seconds=chance.choice([0, 3_600]),
        )
        for name in names
        if chance.random() < 0.8
    )
    claims = tuple(
        cpu_claim(
            f"s{k}",
            chance.choice(names),
            created=float(chance.randint(0, 3)),
            cpu=chance.choice([2_500, UNIT, UNIT, 3 * UNIT]),
            slots=chance.choice([0, 0, 1, 1, 2, 3, 8]),
            want=chance.randint(0, 30),
            priority_class=chance.choice(["urgent", "normal", "normal", "normal", "idle"]),
            weight=chance.choice([1, UNIT, UNIT, 30_001]),
        )
        for k in range(chance.randint(1, 12))
    )
    if chance.random() < 0.5:  # half of the worlds have trials of several GPUs or nodes
        claims = tuple(
            resized(claim, chance.choice([1, 1, 2, 3]), chance.choice([1, 1, 2, 3])) for claim in claims
        )
    return World(nodes, owners, claims)


def use(world: World, shares: dict[str, Share]) -> dict[str, tuple[int, int]]:
    """Return the cores (1/10,000) and devices of all shares, by node."""
    total = {node.name: (0, 0) for node in world.nodes}
    for claim in world.claims:
        for node, trials in shares[claim.sweep].bundles:
            cpu, devices = total[node]
            total[node] = cpu + trials * claim.cpu, devices + claim.device
    return total
