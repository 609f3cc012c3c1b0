"""A trial whose resources are free, but in pieces on several nodes, gets one of the nodes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.sharing.node_holds import NOTHING, Hold, Move, NodeHolds
from orchestrator.sharing.pool_rows import CLASSES, RULES, UNIT, Place, PoolClaim, PoolNode, Snapshot, Use
from orchestrator.sharing.shedding import SheddableTrial, moved
from orchestrator.sharing.view import View, renewed
from tests.orchestrator.sharing import plain_holds
from tests.orchestrator.sharing.clusters import INTERVAL, Cluster
from tests.orchestrator.sharing.worlds import cpu_claim, resized

NOW = 1_000_000.0
LONG_AGO = NOW - RULES.hold_after
AT_MOST = RULES.hold_after + RULES.min_run + INTERVAL + 5.0
"""Seconds within which a trial runs once it was granted: docs/sharing.md, with reports every 10 s."""


def pool(
    cores: list[int],
    claims: list[PoolClaim],
    places: dict[str, tuple[Place, ...]],
    waiting: dict[str, float],
    **held: tuple[str, float],
) -> View:
    """Return a pool in which sweeps run trials on nodes, and in which one trial each of some sweeps waits."""
    nodes = tuple(PoolNode(f"n{number}", count * UNIT) for number, count in enumerate(cores))
    uses = tuple(
        Use(
            claim.sweep,
            NOW,
            sum(place.trials for place in places.get(claim.sweep, ())) + (claim.sweep in waiting),
            pending=int(claim.sweep in waiting),
            pending_since=waiting.get(claim.sweep),
            held_node=held.get(claim.sweep, (None, None))[0],
            held_since=held.get(claim.sweep, (None, None))[1],
            places=places.get(claim.sweep, ()),
        )
        for claim in claims
    )
    return View.of(Snapshot(nodes, (), tuple(claims), uses), NOW)


def on(node: str, trials: int, ready: int | None = None) -> tuple[Place, ...]:
    """Return the place of trials on one node; all of them have completed their minimum run by default."""
    return (Place(node, trials, 0, trials if ready is None else ready),)


A, B = cpu_claim("a", "ada", 4), cpu_claim("b", "bob", 4)
WHOLE = cpu_claim("whole", "eve", 1, cpu=2 * UNIT)


def test_a_node_is_held_for_a_trial_that_fits_none_although_enough_is_free() -> None:
    """It is the node that the smaller sum of trials must leave."""
    four = cpu_claim("whole", "eve", 1, cpu=4 * UNIT)
    view = pool([4, 4], [A, B, four], {"a": on("n0", 3), "b": on("n1", 1)}, {"whole": LONG_AGO})
    assert view.holding.by_node == {"n1": Hold("whole", "n1", NOW)}
    assert view.holding.moves == {"b": {"n1": Move(1)}}


def test_all_nodes_of_a_trial_are_held_together_or_none() -> None:
    """Two nodes are cleared for a trial of two; of three with one room, the room is held as well."""
    pair = replace(WHOLE, nodes=2)
    places = {"a": on("n0", 3), "b": on("n1", 3)}
    view = pool([4, 4], [A, B, pair], places, {"whole": LONG_AGO})
    assert view.holding.of("whole") == [Hold("whole", "n0", NOW), Hold("whole", "n1", NOW)]
    assert view.holding.moves == {"a": {"n0": Move(1)}, "b": {"n1": Move(1)}}
    written = renewed(view, view.uses["whole"])
    assert (written.held_node, written.held_since) == ("n0,n1", NOW)
    assert view.about_holds("whole") == "holds nodes n0 and n1 for a trial that needs 2 nodes"
    view = pool([4, 4, 4], [A, B, pair], {"a": on("n0", 2), "b": on("n0", 2)}, {"whole": LONG_AGO})
    assert not view.holding.by_node, "two nodes have room, so its worker is starting"
    view = pool([4, 4, 4], [A, B, pair], places, {"whole": LONG_AGO})
    assert set(view.holding.by_node) == {"n2", "n0"}
    small = pool([4, 1], [A, B, pair], {"a": on("n0", 3)}, {"whole": LONG_AGO})
    assert not small.holding.by_node, "the second node is too small for it"


def test_no_node_is_held_before_the_patience_is_over() -> None:
    places = {"a": on("n0", 1), "b": on("n1", 1)}
    assert pool([2, 2], [A, B, WHOLE], places, {"whole": LONG_AGO + 1.0}).holding == NOTHING


def test_no_node_is_held_where_one_has_room() -> None:
    """The worker of such a trial is starting."""
    view = pool([2, 2], [A, B, WHOLE], {"a": on("n0", 1), "b": on("n0", 1)}, {"whole": LONG_AGO})
    assert not view.holding.by_node


def test_no_node_is_held_beyond_a_share() -> None:
    """A sweep that runs more than its share got it from the others, who may need it back."""
    two = replace(WHOLE, want=2)
    places = {"a": on("n0", 1), "whole": on("n1", 1), "b": on("n2", 1)}
    view = pool([2, 2, 2], [A, B, two], places, {"whole": LONG_AGO})
    assert view.shares["whole"].trials == 1
    assert not view.holding.by_node


def test_trials_as_large_as_the_one_that_waits_stay() -> None:
    """Otherwise the two would clear nodes of each other in turn."""
    three = cpu_claim("three", "eve", 1, cpu=3 * UNIT)
    places = {"a": on("n0", 2), "other": on("n1", 1)}
    view = pool([4, 4], [A, replace(three, sweep="other", owner="joe"), three], places, {"three": LONG_AGO})
    assert set(view.holding.by_node) == {"n0"}


@pytest.mark.parametrize(("kind", "is_held"), [("idle", False), ("normal", True), ("urgent", True)])
def test_trials_of_a_higher_class_stay(kind: str, is_held: bool) -> None:
    claims = [A, B, replace(WHOLE, priority_class=kind)]  # type: ignore[arg-type]
    view = pool([2, 2], claims, {"a": on("n0", 1), "b": on("n1", 1)}, {"whole": LONG_AGO})
    assert bool(view.holding.by_node) == (is_held and view.shares["whole"].trials > 0)


def test_trials_beyond_a_share_leave_whatever_their_size_and_class() -> None:
    """Their sweep got the places when a reservation had lapsed: nothing else asks for them back."""
    urgent = cpu_claim("urgent", "joe", 4, cpu=2 * UNIT, priority_class="urgent")
    places = {"urgent": (Place("n0", 1, 0, 1), Place("n1", 1, 0, 1), Place("n2", 1, 0, 1))}
    view = pool([2, 2, 2], [A, urgent, WHOLE], places, {"whole": LONG_AGO})
    assert view.shares["urgent"].trials < 3
    assert view.holding.moves == {"urgent": {"n0": Move(1)}}


def gpu_pool(shared: PoolClaim, device: PoolClaim, engine: Place) -> View:
    """Return a pool of two nodes with a GPU each: an engine has one, and cores beside the other are used."""
    nodes = (PoolNode("n0", 4 * UNIT, 1), PoolNode("n1", 4 * UNIT, 1))
    urgent = cpu_claim("urgent", "joe", 3, priority_class="urgent")
    uses = (
        Use(shared.sweep, NOW, 2, 0, 1, places=(engine,)),
        Use(device.sweep, NOW, 1, 1, 1, pending_since=LONG_AGO),
        Use(urgent.sweep, NOW, 3, places=on("n1", 3)),
    )
    return View.of(Snapshot(nodes, (), (shared, device, urgent), uses), NOW)


DEVICE = PoolClaim("device", "eve", 1.0, 2 * UNIT, 1, want=1, gpu=1)
SHARED = PoolClaim("shared", "ada", 0.0, UNIT, 2, want=2, gpu=1)


def test_the_trials_of_a_shared_device_leave_it_for_a_trial_with_a_device_of_its_own() -> None:
    """The other node has a free GPU, and trials of a higher class beside it, which stay."""
    view = gpu_pool(SHARED, DEVICE, Place("n0", 2, 1, 2))
    assert view.holding.by_node == {"n0": Hold("device", "n0", NOW)}
    assert view.holding.moves == {"shared": {"n0": Move(0, 1)}}
    why = "the trials of 1 GPU leave node n0, which is held for a trial of sweep device"
    assert view.about_holds("shared") == why
    assert view.holding == plain_holds.holding(view)


def test_a_shared_device_of_a_higher_class_stays() -> None:
    urgent = replace(SHARED, priority_class="urgent")
    assert not gpu_pool(urgent, DEVICE, Place("n0", 2, 1, 2)).holding.by_node


def test_no_trial_with_a_device_of_its_own_leaves_for_one_in_a_slot() -> None:
    """Otherwise the two would clear nodes of each other in turn."""
    single = PoolClaim("single", "ada", 0.0, UNIT, 1, want=2, gpu=1)
    slot = replace(DEVICE, slots=2)
    nodes = (PoolNode("n0", 4 * UNIT, 1), PoolNode("n1", 4 * UNIT, 1))
    uses = (
        Use("single", NOW, 2, 0, 2, places=(Place("n0", 1, 1, 1), Place("n1", 1, 1, 1))),
        Use("device", NOW, 1, 1, 1, pending_since=LONG_AGO),
    )
    assert not View.of(Snapshot(nodes, (), (single, slot), uses), NOW).holding.moves


def running(key: str, engine: str | None, started: float = 0.0) -> SheddableTrial:
    return SheddableTrial(key, engine, started, started)


def test_all_trials_of_one_device_leave_it_wherever_their_processors_are() -> None:
    trials = [running("a", "e0"), running("b", "e0"), running("c", "e1"), running("d", "e1")]
    nodes = {"a": ("n0",), "b": ("n1",), "c": ("n0",), "d": ("n0",)}
    engines = {"e0": "n0", "e1": "n1"}
    assert moved(trials, nodes, engines, {"n0": Move(0, 1)}, 500.0, 120.0) == {"a", "b"}
    assert moved(trials, nodes, engines, {"n0": Move(1, 1)}, 500.0, 120.0) == {"a", "b"}, "a counts twice"
    assert len(moved(trials, nodes, engines, {"n0": Move(2, 1)}, 500.0, 120.0)) == 3
    young = [*trials[1:], running("a", "e0", 450.0)]
    assert moved(young, nodes, engines, {"n0": Move(0, 1)}, 500.0, 120.0) == frozenset()


def test_an_idle_engine_leaves_before_one_that_trains() -> None:
    """Its driver lets it end as soon as another sweep is in the pool."""
    trials, engines = [running("a", "e0")], {"e0": "n0", "e1": "n0"}
    assert not moved(trials, {"a": ("n0",)}, engines, {"n0": Move(0, 1)}, 500.0, 120.0)
    assert moved(trials, {"a": ("n0",)}, engines, {"n0": Move(0, 2)}, 500.0, 120.0) == {"a"}


def test_trials_that_have_completed_their_minimum_run_leave_before_others() -> None:
    view = pool([2, 2], [A, B, WHOLE], {"a": on("n0", 1, 0), "b": on("n1", 1)}, {"whole": LONG_AGO})
    assert view.holding.moves == {"b": {"n1": Move(1)}}


def test_a_hold_stays_on_its_node_and_keeps_its_beginning() -> None:
    """By loss alone it would move with every trial that ends."""
    held = ("n0", LONG_AGO + 5.0)
    places = {"a": on("n0", 2), "b": on("n1", 1)}
    view = pool([2, 2], [A, B, WHOLE], places, {"whole": LONG_AGO}, whole=held)
    assert view.holding.by_node == {"n0": Hold("whole", *held)}
    written = renewed(view, view.uses["whole"])
    assert (written.held_node, written.held_since) == held


def test_a_hold_ends_with_the_wait() -> None:
    places = {"a": on("n0", 1), "whole": on("n1", 1)}
    view = pool([2, 2], [A, WHOLE], places, {}, whole=("n1", LONG_AGO))
    assert view.holding == NOTHING
    assert renewed(view, view.uses["whole"]).held_node is None


def test_a_node_that_has_been_held_in_vain_is_held_no_longer_and_no_other_is() -> None:
    """Another program uses it. The next attempt may hold one again."""
    held, waited = ("n0", NOW - RULES.hold_for), NOW - RULES.hold_for - RULES.hold_after
    places = {"a": on("n0", 1), "b": on("n1", 1)}
    view = pool([2, 2], [A, B, WHOLE], places, {"whole": waited}, whole=held)
    assert not view.holding.by_node
    assert renewed(view, view.uses["whole"]).held_node == "n0", "so that every driver knows it"
    assert pool([2, 2], [A, B, WHOLE], places, {"whole": LONG_AGO}, whole=held).holding.by_node


def test_a_reservation_does_not_lapse_while_a_node_is_held() -> None:
    long_ago = NOW - RULES.lapse_after
    places = {"a": on("n0", 1), "b": on("n1", 1)}
    view = pool([2, 2], [A, B, WHOLE], places, {"whole": long_ago})
    assert not view.has_lapsed("whole")
    assert view.free == (0, 0), "what waits for the node is not free for others"
    ready_for_none = pool([2, 2], [A, B, replace(WHOLE, want=0)], places, {"whole": long_ago})
    assert ready_for_none.has_lapsed("whole")


def test_others_start_nothing_while_only_the_held_node_has_room() -> None:
    """A place for a trial that has to move is one elsewhere."""
    places = {"a": on("n0", 1), "b": on("n1", 2)}
    view = pool([2, 4], [A, B, WHOLE], places, {"whole": LONG_AGO - 5.0}, whole=("n0", LONG_AGO))
    assert view.holding.moves == {"a": {"n0": Move(1)}}
    assert view.may_start("b") == (view.shares["b"].trials > 2)
    full = pool([2, 2], [A, B, WHOLE], {"b": on("n1", 2)}, {"whole": LONG_AGO - 5.0}, whole=("n0", LONG_AGO))
    assert full.free == (0, 0)
    assert not full.may_start("a")


@st.composite
def views(draw: st.DrawFn) -> View:
    """Draw pools whose nodes are partly in use, with sweeps of unequal trials of which some wait."""
    chance = random.Random(draw(st.integers(0, 10**6)))
    nodes = tuple(
        PoolNode(f"n{k}", chance.choice([2, 4, 8]) * UNIT, chance.choice([0, 0, 1, 2]))
        for k in range(chance.randint(2, 9))
    )
    free = {node.name: [node.devices, node.cpu] for node in nodes}
    claims, uses = [], []
    is_large = chance.random() < 0.5  # trials of several GPUs or nodes
    for number in range(chance.randint(2, 8)):
        claim = PoolClaim(
            f"s{number}",
            f"o{chance.randint(0, 4)}",
            created=float(chance.randint(0, 3)),
            cpu=chance.choice([UNIT, UNIT, 2 * UNIT, 3 * UNIT, 4 * UNIT]),
            slots=chance.choice([0, 0, 0, 1, 2]),
            want=chance.randint(1, 8),
            priority_class=chance.choice([*CLASSES, "normal"]),
            gpu=1,
        )
        if is_large:
            claim = resized(claim, chance.choice([1, 1, 2]), chance.choice([1, 1, 2]))
        devices, cpu = claim.on_node
        places = []
        for name, left in free.items():
            fits = min(left[1] // cpu, left[0] // devices if devices else 8)
            trials = chance.randint(0, min(fits, 3))
            used = (
                chance.randint(0, left[0] // claim.gpu) * claim.gpu if claim.slots > 1 else trials * devices
            )
            if trials or used:
                free[name] = [left[0] - used, left[1] - trials * cpu]
                places.append(Place(name, trials, used, chance.randint(0, trials)))
        pending, running = chance.choice([0, 0, 1, 2]), sum(place.trials for place in places)
        names = ",".join(node.name for node in chance.sample(nodes, min(claim.nodes, len(nodes))))
        held = chance.choice([None, None, names]) if pending else None
        uses.append(
            Use(
                claim.sweep,
                NOW,
                running + pending,
                pending,
                sum(place.devices for place in places),
                pending_since=NOW - chance.choice([1.0, 25.0, 70.0, 4_000.0]) if pending else None,
                held_node=held,
                held_since=NOW - chance.choice([0.0, 5.0, 2_500.0]) if held else None,
                places=tuple(places),
            )
        )
        claims.append(claim)
    return View.of(Snapshot(nodes, (), tuple(claims), tuple(uses)), NOW)


def left_on(view: View, node: str) -> tuple[int, int]:
    """Return the free devices and cores of a node once what leaves it has left."""
    devices = next(one.devices for one in view.nodes if one.name == node)
    cpu = next(one.cpu for one in view.nodes if one.name == node)
    for sweep, use in view.uses.items():
        leaving, shared = view.holding.moves.get(sweep, {}).get(node, Move(0))
        for place in use.places:
            if place.node == node:
                claim = view.claims[sweep]
                devices -= place.devices - leaving * claim.on_node[0] - shared * claim.gpu
                cpu -= (place.trials - leaving) * view.claims[sweep].cpu
    return devices, cpu


@given(view=views())
@settings(max_examples=100, deadline=None)
def test_a_node_that_is_held_has_room_once_the_trials_have_left_it(view: View) -> None:
    for node, hold in view.holding.by_node.items():
        devices, cpu = left_on(view, node)
        assert devices >= view.claims[hold.sweep].on_node[0]
        assert cpu >= view.claims[hold.sweep].cpu


@given(view=views())
@settings(max_examples=100, deadline=None)
def test_a_sweep_holds_the_nodes_of_one_trial_and_all_hold_a_part(view: View) -> None:
    holds = view.holding.by_node.values()
    held = Counter(hold.sweep for hold in holds)
    assert all(count == view.claims[sweep].nodes for sweep, count in held.items())
    largest = max(held.values(), default=0) if len(held) == 1 else 1
    assert len(holds) <= max(largest, len(view.nodes) * RULES.held_nodes // UNIT)
    for hold in holds:
        use = view.uses[hold.sweep]
        assert use.pending_since is not None
        assert view.now - use.pending_since >= RULES.hold_after
        assert use.trials <= view.shares[hold.sweep].trials, "within its share"


@given(view=views())
@settings(max_examples=100, deadline=None)
def test_only_smaller_trials_leave_or_those_beyond_a_share_and_only_nodes_that_are_held(view: View) -> None:
    for sweep, moves in view.holding.moves.items():
        for node, (trials, devices) in moves.items():
            [place] = [place for place in view.uses[sweep].places if place.node == node]
            assert 0 <= trials <= place.trials
            claim = view.claims[sweep]
            assert 0 <= devices * claim.gpu <= (place.devices if claim.slots > 1 else 0)
            assert trials or devices
            holder = view.claims[view.holding.by_node[node].sweep]
            is_lower = CLASSES.index(claim.priority_class) >= CLASSES.index(holder.priority_class)
            is_smaller = claim.on_node < holder.on_node and is_lower
            use, share = view.uses[sweep], view.shares[sweep]
            assert is_smaller or trials <= max(0, use.trials - share.trials)
            assert is_smaller or devices * claim.gpu <= max(0, use.devices - share.devices)


@given(view=views())
@settings(max_examples=300, deadline=None)
def test_holds_are_those_of_a_plain_computation(view: View) -> None:
    assert view.holding == plain_holds.holding(view)


@given(view=views(), seed=st.integers(0, 1_000))
@settings(max_examples=100, deadline=None)
def test_every_driver_computes_the_same_holds(view: View, seed: int) -> None:
    """Whatever the order of the rows; and once they are written, they remain."""
    chance = random.Random(seed)

    def shuffled(uses: list[Use]) -> Snapshot:
        claims, nodes = list(view.claims.values()), list(view.nodes)
        for rows in (claims, nodes, uses):
            chance.shuffle(rows)  # type: ignore[arg-type]
        return Snapshot(tuple(nodes), (), tuple(claims), tuple(uses))

    assert View.of(shuffled(list(view.uses.values())), NOW).holding == view.holding
    written = [renewed(view, use) for use in view.uses.values()]
    assert View.of(shuffled(written), NOW).holding == view.holding


def most_apart(places: list[int], nodes: int) -> int:
    """Return how many trials fit that take one place on so many nodes, from the nodes with most places."""
    left, trials = sorted(places, reverse=True), 0
    while len(left) >= nodes and left[nodes - 1] > 0:
        left = sorted([count - 1 for count in left[:nodes]] + left[nodes:], reverse=True)
        trials += 1
    return trials


@given(view=views())
@settings(max_examples=100, deadline=None)
def test_holds_keep_sweeps_from_nothing_but_the_nodes_that_are_held(view: View) -> None:
    """Work is conserved elsewhere: what may start without holds may start with them if a place is open."""
    without = replace(view)
    vars(without)["holding"] = NOTHING
    for sweep, claim in view.claims.items():
        closed = view.holding.closed_to(sweep)
        devices, cpu = claim.on_node
        open_now = []
        for node in view.nodes:
            if node.name in closed:
                continue
            taken = [
                (one, place)
                for one, use in view.uses.items()
                for place in use.places
                if place.node == node.name
            ]
            free = node.cpu - sum(view.claims[one].cpu * place.trials for one, place in taken)
            gpus = node.devices - sum(place.devices for _, place in taken)
            open_now.append(max(0, min(free // cpu, gpus // devices if devices else free // cpu)))
        waiting = sum(use.pending for use in view.uses.values())
        if most_apart(open_now, claim.nodes) > waiting and view.free == without.free:
            assert view.may_start(sweep) == without.may_start(sweep)


def fragmented(seed: int, cores: list[int], lasts: float | None) -> Cluster:
    """Return nodes that small trials of two owners fill but for one core each."""
    cluster = Cluster(cores, seed=seed)
    for number, count in enumerate(cores):
        owner, want = ("ada", "bob")[number % 2], count - 1
        cluster.join(cpu_claim(f"small-{number}", owner, want), lasts)
        cluster.put(f"small-{number}", f"n{number}", want)
    cluster.run(1)
    return cluster


@pytest.mark.slow
@given(
    seed=st.integers(0, 10_000),
    cores=st.lists(st.sampled_from([2, 2, 4]), min_size=2, max_size=5),
    lasts=st.sampled_from([None, 7.0, 45.0, 400.0]),
)
@settings(max_examples=8, deadline=None)
def test_a_trial_of_a_whole_node_starts_within_a_bound(
    seed: int, cores: list[int], lasts: float | None
) -> None:
    """Small trials end and start again, or never end: neither keeps the large one from a node."""
    cluster = fragmented(seed, cores, lasts)
    whole = cluster.join(cpu_claim("whole", "eve", 1, cpu=2 * UNIT))
    while not whole.attempts:
        cluster.step()
    granted = cluster.now
    while not whole.running:
        cluster.step()
        assert cluster.now - granted <= AT_MOST
    cluster.run(3)
    assert not cluster.view().holding.by_node, "a hold ends with the start"
    assert all(age >= RULES.min_run for age in cluster.moved)
    cluster.run(RULES.min_run + RULES.shed_after + 30.0)
    view = cluster.view()
    assert all(use.trials == view.shares[sweep].trials for sweep, use in view.uses.items()), (
        "the trials that have moved run elsewhere"
    )


@given(seed=st.integers(0, 10_000), lasts=st.sampled_from([None, 45.0, 400.0]))
@settings(max_examples=5, deadline=None)
def test_a_trial_with_a_device_of_its_own_gets_that_of_a_shared_engine_within_a_bound(
    seed: int, lasts: float | None
) -> None:
    """A device is free on a node whose cores others use; the shared one moves there, with its trials."""
    cluster = Cluster([8, 4], seed=seed, devices=[1, 1])
    shared = cluster.join(PoolClaim("shared", "ada", 0.0, UNIT, 4, want=3, gpu=1), lasts)
    cluster.join(cpu_claim("urgent", "joe", 1, cpu=UNIT, priority_class="urgent"))
    for age in (0.0, 13.0, 31.0):
        cluster.put("shared", "n0", age=age)
    cluster.put("urgent", "n1", 1)
    cluster.run(1)
    device = cluster.join(PoolClaim("device", "eve", 1.0, 4 * UNIT, 1, want=1, gpu=1))
    while not device.attempts:
        cluster.step()
    granted = cluster.now
    while not device.running:
        cluster.step()
        assert cluster.now - granted <= AT_MOST
    cluster.run(RULES.min_run + INTERVAL)
    assert [attempt.node for attempt in device.running] == ["n0"]
    assert {engine.node for engine in shared.engines.values()} == {"n1"}
    assert len(shared.running) == 3
    assert not cluster.view().holding.by_node


def test_without_a_hold_it_waits_for_ever() -> None:
    """This is what the hold changes: the same pool, and ten minutes."""
    cluster = fragmented(3, [2, 2], None)
    cluster.rules = replace(RULES, hold_after=float("inf"))
    whole = cluster.join(cpu_claim("whole", "eve", 1, cpu=2 * UNIT))
    cluster.run(600)
    assert not whole.running


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seed", range(3))
def test_several_large_trials_get_nodes_in_turn(seed: int) -> None:
    """A part of the nodes is held at once, and each sweep in turn."""
    cluster = fragmented(seed, [2] * 6, None)
    for name in ("eve", "joe"):
        cluster.join(cpu_claim(f"whole-{name}", name, 1, cpu=2 * UNIT))
    most = 0
    for _ in range(round(3 * AT_MOST)):
        cluster.step()
        most = max(most, len(cluster.view().holding.by_node))
    assert most == 1
    assert all(cluster.drivers[f"whole-{name}"].running for name in ("eve", "joe"))
    assert not cluster.view().holding.by_node


def test_a_hold_is_recorded_by_sweep_and_node() -> None:
    holds = NodeHolds({"n0": Hold("a", "n0", 1.0)})
    assert holds.of("a") == [Hold("a", "n0", 1.0)]
    assert holds.of("b") == []
    assert (holds.closed_to("a"), holds.closed_to("b")) == (frozenset(), {"n0"})
