"""What holds for the shares of any pool, any owners and any claims."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.sharing.capacity import Capacity
from orchestrator.sharing.fill import fill
from orchestrator.sharing.pool_rows import CLASSES, UNIT, Owner, PoolClaim, PoolNode, Share
from tests.orchestrator.sharing import reference
from tests.orchestrator.sharing.worlds import World, cpu_claim, gpu_claim, random_world, use, worlds

EXAMPLES = settings(max_examples=100, deadline=None)


def _filled(world: World) -> dict[str, Share]:
    return fill(world.nodes, world.owners, world.claims)


def _dominant(world: World, shares: dict[str, Share], owner: str) -> int:
    """Return an owner's dominant share."""
    own = [claim for claim in world.claims if claim.owner == owner]
    cpu = sum(shares[claim.sweep].trials * claim.cpu for claim in own)
    return Capacity.of(world.nodes).dominant(cpu, sum(shares[claim.sweep].devices for claim in own))


def _fits(world: World, claim: PoolClaim, node: str, free: tuple[int, int]) -> bool:
    return free[0] >= claim.cpu and free[1] >= claim.device


def _free(world: World, shares: dict[str, Share]) -> dict[str, tuple[int, int]]:
    used = use(world, shares)
    return {
        node.name: (node.cpu - used[node.name][0], node.devices - used[node.name][1]) for node in world.nodes
    }


def _wanting(world: World, shares: dict[str, Share]) -> list[PoolClaim]:
    return [claim for claim in world.claims if shares[claim.sweep].trials < claim.want]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("block", range(8))
def test_same_shares_as_the_slow_and_obvious_way(block: int) -> None:
    for seed in range(250 * block, 250 * (block + 1)):
        world = random_world(seed)
        assert _filled(world) == reference.fill(world.nodes, world.owners, world.claims), world


@EXAMPLES
@given(worlds(classes=CLASSES, quotas=True))
def test_shares_fit_the_pool_and_no_sweep_gets_more_than_it_can_use(world: World) -> None:
    shares = _filled(world)
    assert all(cpu >= 0 and devices >= 0 for cpu, devices in _free(world, shares).values())
    for claim in world.claims:
        share = shares[claim.sweep]
        assert share.trials == sum(bundle.trials for bundle in share.bundles) <= claim.want
        assert share.devices == claim.device * len(share.bundles)
        assert all(1 <= bundle.trials <= claim.bundle for bundle in share.bundles)


@EXAMPLES
@given(worlds(classes=CLASSES))
def test_nothing_is_left_in_which_a_trial_fits(world: World) -> None:
    shares = _filled(world)
    for claim in _wanting(world, shares):
        for node, free in _free(world, shares).items():
            assert not _fits(world, claim, node, free), (claim, node)


@EXAMPLES
@given(worlds())
def test_no_owner_envies_another_by_more_than_a_bundle(world: World) -> None:
    """An owner with more by weight has no more without its last bundle, or its place helps no one."""
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
                    richer for richer in world.claims if richer.owner == other and shares[richer.sweep].trials
                )
            ), (claim, other)


def _envy_ends(
    world: World,
    shares: dict[str, Share],
    claim: PoolClaim,
    other: str,
    sweep: PoolClaim,
    own: int,
    weight: int,
) -> bool:
    """Return True if, without one bundle, its owner has no more or the claim does not fit there."""
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
def test_splitting_a_sweep_of_whole_trials_gains_nothing(world: World, data: st.DataObject) -> None:
    """The owner's sweeps ask for the same per trial: otherwise a split changes what the owner asks for."""
    claim, alike = _alike(world, data, 0)
    before, after = _before_and_after_a_split(alike, claim, data)
    assert after == before


@EXAMPLES
@given(worlds(), st.integers(1, 8), st.data())
def test_splitting_a_sweep_that_shares_devices_gains_at_most_one_bundle(
    world: World, slots: int, data: st.DataObject
) -> None:
    """On nodes and trials of one kind; unequal ones leave gaps that any change of the order may fill."""
    claim, alike = _alike(world, data, slots)
    node = world.nodes[0]
    one_kind = replace(
        alike,
        nodes=tuple(replace(node, name=other.name) for other in world.nodes),
        claims=tuple(replace(other, cpu=claim.cpu, slots=claim.slots) for other in alike.claims),
    )
    claim = one_kind.claim(claim.sweep)
    before, after = _before_and_after_a_split(one_kind, claim, data)
    bundle = Capacity.of(one_kind.nodes).dominant(claim.cpu * claim.bundle, claim.device)
    assert after <= before + bundle


def _alike(world: World, data: st.DataObject, slots: int) -> tuple[PoolClaim, World]:
    """Return a claim to split, in a world in which all sweeps of its owner ask for the same per trial."""
    claim = replace(data.draw(st.sampled_from(world.claims)), slots=slots)
    assume(claim.want > 1)
    claims = tuple(
        replace(row, cpu=claim.cpu, slots=slots) if row.owner == claim.owner else row for row in world.claims
    )
    return claim, replace(world, claims=claims)


def _before_and_after_a_split(world: World, claim: PoolClaim, data: st.DataObject) -> tuple[int, int]:
    """Return the owner's dominant share with a sweep, and with two sweeps that want its trials together."""
    first = data.draw(st.integers(1, claim.want - 1))
    parts = (
        replace(claim, sweep=f"{claim.sweep}a", want=first),
        replace(claim, sweep=f"{claim.sweep}b", want=claim.want - first),
    )
    others = (other for other in world.claims if other.sweep != claim.sweep)
    split = replace(world, claims=(*others, *parts))
    before = _dominant(world, _filled(world), claim.owner)
    return before, _dominant(split, _filled(split), claim.owner)


def test_a_normal_sweep_keeps_its_floor_and_urgent_stays_below_its_cap() -> None:
    """Of 20 cores, `urgent` gets 25 % ahead of the others; `idle` gets nothing while the others want all."""
    claims = [
        cpu_claim("a", "ada", 20, priority_class="urgent"),
        cpu_claim("b", "bob", 20),
        cpu_claim("c", "cyd", 20, priority_class="idle"),
    ]
    shares = fill([PoolNode("n", 20 * UNIT)], [], claims)
    assert {name: share.trials for name, share in shares.items()} == {"a": 10, "b": 10, "c": 0}
    many = [*claims, *(cpu_claim(f"u{k}", f"owner{k}", 20, priority_class="urgent") for k in range(5))]
    shares = fill([PoolNode("n", 20 * UNIT)], [], many)
    assert shares["b"].trials == 2
    few = [claims[0], *(cpu_claim(f"n{k}", f"owner{k}", 20) for k in range(9))]
    assert fill([PoolNode("n", 20 * UNIT)], [], few)["a"].trials == 5, "without class `urgent` it would be 2"


def test_weights_divide_the_pool_in_proportion() -> None:
    owners = [Owner("ada", weight=2 * UNIT), Owner("bob")]
    shares = fill([PoolNode("n", 9 * UNIT)], owners, [cpu_claim("a", "ada", 9), cpu_claim("b", "bob", 9)])
    assert (shares["a"].trials, shares["b"].trials) == (6, 3)


def test_trials_that_share_a_device_are_dealt_a_device_at_a_time() -> None:
    claims = [gpu_claim("a", "ada", 16, slots=8), gpu_claim("b", "bob", 3, slots=1)]
    shares = fill([PoolNode("n", 64 * UNIT, 4)], [], claims)
    assert (shares["a"].devices, shares["a"].trials) == (2, 16)
    assert (shares["b"].devices, shares["b"].trials) == (2, 2)


def test_an_owner_who_has_used_less_wins_the_last_place() -> None:
    owners = [Owner("ada", used=1_200), Owner("bob", used=599)]
    shares = fill(
        [PoolNode("n", UNIT)], owners, [cpu_claim("a", "ada", 1), cpu_claim("b", "bob", 1, created=5.0)]
    )
    assert (shares["a"].trials, shares["b"].trials) == (0, 1)


def test_a_quota_of_gpu_hours_that_is_spent_leaves_no_share_of_a_device() -> None:
    owners = [Owner("ada", most_gpu_hours=1, week_gpu_seconds=3_600)]
    claims = [gpu_claim("a", "ada", 4), cpu_claim("b", "ada", 4)]
    shares = fill([PoolNode("n", 8 * UNIT, 2)], owners, claims)
    assert (shares["a"].trials, shares["b"].trials) == (0, 4)


@pytest.mark.slow
def test_shares_of_a_large_pool_are_computed_in_a_fraction_of_the_obvious_way() -> None:
    """300 sweeps of 40 owners on 1,024 GPUs."""
    nodes = [PoolNode(f"n{k:03}", 96 * UNIT, 8) for k in range(128)]
    claims = [gpu_claim(f"s{k}", f"o{k % 40}", 16, slots=1 + k % 2, created=float(k)) for k in range(300)]
    began = time.process_time()
    expected = reference.fill(nodes, [], claims)
    obvious = time.process_time() - began
    began = time.process_time()
    assert fill(nodes, [], claims) == expected
    assert time.process_time() - began < obvious / 10


def test_parts_of_a_gpu_of_several_sweeps_share_one_device() -> None:
    """Four quarters fill it, of one owner or of several; three thirds do, and a fourth one waits."""
    node = PoolNode("n", 64 * UNIT, UNIT)

    def claim(sweep: str, gpu: float) -> PoolClaim:
        return replace(PoolClaim.of(sweep, sweep, 0.0, 1.0, gpu, shares_engine=False), want=8)

    shares = fill([node], [], [claim("a", 1 / 4), claim("b", 1 / 4)])
    assert [shares[name].trials for name in "ab"] == [2, 2]
    assert shares["a"].devices == UNIT // 2
    assert fill([node], [], [claim("a", 1 / 3)])["a"].trials == 3
    assert fill([node], [], [claim("a", 1 / 7)])["a"].trials == 7
    engine = replace(PoolClaim.of("c", "c", 0.0, 1.0, 1 / 4), want=8)
    shares = fill([node], [], [claim("a", 1 / 4), engine])
    assert [shares[name].trials for name in "ac"] in ([4, 0], [0, 4]), "an engine has a whole device"


def test_a_trial_of_several_nodes_gets_all_of_them_or_none() -> None:
    nodes = [PoolNode(f"n{k}", 8 * UNIT, 8 * UNIT) for k in range(3)]
    whole = PoolClaim.of("whole", "ada", 0.0, 1.0, 8, nodes=2)
    shares = fill(nodes, [], [replace(whole, want=2)])
    assert (shares["whole"].trials, shares["whole"].devices) == (1, 16 * UNIT)
    assert len({bundle.node for bundle in shares["whole"].bundles}) == 2
    assert fill(nodes[:1], [], [replace(whole, want=2)])["whole"].trials == 0
    quota = [Owner("ada", most_share=UNIT // 2)]
    first = replace(whole, want=9)
    assert fill(nodes * 1, quota, [first])["whole"].trials == 1, "an owner always may have one"
