"""What holds for the shares of any pool, any owners and any claims."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.sharing.capacity import Capacity
from orchestrator.sharing.fill import fill
from orchestrator.sharing.rows import CLASSES, UNIT, Claim, Node, Owner, Share
from tests.orchestrator.sharing import reference
from tests.orchestrator.sharing.worlds import World, cpu_claim, gpu_claim, random_world, use, worlds

EXAMPLES = settings(max_examples=300, deadline=None)


def _filled(world: World) -> dict[str, Share]:
    return fill(world.nodes, world.owners, world.claims)


def _dominant(world: World, shares: dict[str, Share], owner: str) -> int:
    """Return an owner's dominant share."""
    own = [claim for claim in world.claims if claim.owner == owner]
    cpu = sum(shares[claim.sweep].trials * claim.cpu for claim in own)
    return Capacity.of(world.nodes).dominant(cpu, sum(shares[claim.sweep].devices for claim in own))


def _fits(world: World, claim: Claim, node: str, free: tuple[int, int]) -> bool:
    return free[0] >= claim.cpu and free[1] >= claim.device


def _free(world: World, shares: dict[str, Share]) -> dict[str, tuple[int, int]]:
    used = use(world, shares)
    return {
        node.name: (node.cpu - used[node.name][0], node.devices - used[node.name][1]) for node in world.nodes
    }


def _wanting(world: World, shares: dict[str, Share]) -> list[Claim]:
    return [claim for claim in world.claims if shares[claim.sweep].trials < claim.limit]


@pytest.mark.parametrize("block", range(8))
def test_same_shares_as_the_slow_and_obvious_way(block: int) -> None:
    for seed in range(500 * block, 500 * (block + 1)):
        world = random_world(seed)
        assert _filled(world) == reference.fill(world.nodes, world.owners, world.claims), world


@EXAMPLES
@given(worlds(classes=CLASSES, quotas=True))
def test_shares_fit_the_pool_and_no_sweep_gets_more_than_it_can_use(world: World) -> None:
    shares = _filled(world)
    assert all(cpu >= 0 and devices >= 0 for cpu, devices in _free(world, shares).values())
    for claim in world.claims:
        share = shares[claim.sweep]
        assert share.trials == sum(bundle.trials for bundle in share.bundles) <= claim.limit
        assert share.devices == claim.device * len(share.bundles)
        assert all(1 <= bundle.trials <= claim.bundle for bundle in share.bundles)


@EXAMPLES
@given(worlds(classes=CLASSES))
def test_no_room_is_left_in_which_a_trial_fits(world: World) -> None:
    shares = _filled(world)
    for claim in _wanting(world, shares):
        for node, free in _free(world, shares).items():
            assert not _fits(world, claim, node, free), (claim, node)


@EXAMPLES
@given(worlds())
def test_no_owner_envies_another_by_more_than_a_bundle(world: World) -> None:
    """Wherever an owner has more by weight, taking its last bundle away leaves it with no more, or helps nobody."""
    shares = _filled(world)
    weights = {owner.name: owner.weight for owner in world.owners}
    for claim in _wanting(world, shares):
        own = _dominant(world, shares, claim.owner)
        for other in weights.keys() - {claim.owner}:
            if _dominant(world, shares, other) * weights[claim.owner] <= own * weights[other]:
                continue
            assert any(
                _envy_ends(world, shares, claim, other, sweep, own * weights[other], weights[claim.owner])
                for sweep in (
                    each for each in world.claims if each.owner == other and shares[each.sweep].trials
                )
            ), (claim, other)


def _envy_ends(
    world: World, shares: dict[str, Share], claim: Claim, other: str, sweep: Claim, own: int, weight: int
) -> bool:
    """Return True if without one bundle of a sweep, its owner has no more, or the claim has no room there."""
    for index, (node, trials) in enumerate(shares[sweep.sweep].bundles):
        bundles = shares[sweep.sweep].bundles
        left = Share(
            shares[sweep.sweep].trials - trials,
            sweep.device * (len(bundles) - 1),
            bundles[:index] + bundles[index + 1 :],
        )
        without = shares | {sweep.sweep: left}
        if _dominant(world, without, other) * weight <= own:
            return True
        if not _fits(world, claim, node, _free(world, without)[node]):
            return True
    return False


@EXAMPLES
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_rows_has_no_effect(world: World, chance: random.Random) -> None:
    shares = _filled(world)
    nodes, owners, claims = list(world.nodes), list(world.owners), list(world.claims)
    for rows in (nodes, owners, claims):
        chance.shuffle(rows)
    assert fill(nodes, owners, claims) == shares


@EXAMPLES
@given(worlds(), st.data())
def test_splitting_a_sweep_gains_its_owner_at_most_one_bundle(world: World, data: st.DataObject) -> None:
    claim = data.draw(st.sampled_from(world.claims))
    assume(claim.limit > 1)
    first = data.draw(st.integers(1, claim.limit - 1))
    parts = (
        replace(claim, sweep=f"{claim.sweep}a", want=first, concurrent=None),
        replace(claim, sweep=f"{claim.sweep}b", want=claim.limit - first, concurrent=None),
    )
    split = replace(world, claims=(*(each for each in world.claims if each is not claim), *parts))
    before = _dominant(world, _filled(world), claim.owner)
    after = _dominant(split, _filled(split), claim.owner)
    own = [each for each in world.claims if each.owner == claim.owner]
    capacity = Capacity.of(world.nodes)
    bundle = max(capacity.dominant(each.cpu * min(each.bundle, each.limit), each.device) for each in own)
    assert after <= before + bundle
