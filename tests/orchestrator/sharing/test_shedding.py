"""What sweeps must give up, and which of its own trials a driver chooses for that."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.sharing.pool_rows import CLASSES, RULES, UNIT, Owner, PoolClaim, PoolNode, Snapshot, Use
from orchestrator.sharing.shedding import Demand, SheddableTrial, chosen, demands, minimum_run
from orchestrator.sharing.view import View
from tests.orchestrator.sharing.worlds import cpu_claim, gpu_claim, random_world

NOW = 1_000_000.0
LONG = NOW - RULES.shed_after


def pool(
    claims: list[PoolClaim],
    held: dict[str, int],
    *,
    cores: int = 8,
    devices: int = 0,
    owners: tuple[Owner, ...] = (),
    short_since: float | None = LONG,
    **uses: dict[str, object],
) -> View:
    """Return a pool of one node; sweeps that hold nothing have been short since `short_since`.

    Args:
        claims: of the sweeps.
        held: trials that they hold, on a device for each `slots` of them.
        cores: of the node.
        devices: of the node.
        owners: rows.
        short_since: of the sweeps that hold nothing.
        **uses: other values of the use of a sweep, by sweep.
    """
    rows = []
    for claim in claims:
        trials = held.get(claim.sweep, 0)
        used = -(-trials // claim.slots) if claim.slots else 0
        use = Use(claim.sweep, NOW, trials, devices=used, short_since=None if trials else short_since)
        rows.append(replace(use, **uses.get(claim.sweep, {})))  # type: ignore[arg-type]
    nodes = (PoolNode("node", cores * UNIT, devices),)
    return View.of(Snapshot(nodes, owners, tuple(claims), tuple(rows)), NOW)


def trial(key: str, started: float, reported: float, engine: str | None = None) -> SheddableTrial:
    """Return a trial that was started and has reported so many seconds ago."""
    return SheddableTrial(key, engine, NOW - started, NOW - reported)


# ------------------------------------------------------------------ which trials


def test_the_trial_with_the_least_work_since_its_last_report_leaves_first() -> None:
    trials = [trial("long", 900, 50), trial("fresh", 900, 1), trial("middle", 900, 20)]
    assert chosen(trials, Demand(0, 1), NOW, 120.0) == {"fresh"}
    assert chosen(trials, Demand(0, 2), NOW, 120.0) == {"fresh", "middle"}


def test_of_equal_work_the_youngest_trial_leaves() -> None:
    trials = [trial("old", 900, 5), trial("young", 300, 5)]
    assert chosen(trials, Demand(0, 1), NOW, 120.0) == {"young"}


def test_a_trial_that_is_leaving_stays_chosen_although_another_would_lose_less() -> None:
    leaving = replace(trial("chosen", 900, 50), leaving=True)
    assert chosen([leaving, trial("fresh", 900, 1)], Demand(0, 1), NOW, 120.0) == {"chosen"}
    assert chosen([leaving, trial("fresh", 900, 1)], Demand(0, 0), NOW, 120.0) == set(), "it is withdrawn"


def test_no_trial_leaves_before_its_minimum_run_and_then_fewer_leave() -> None:
    trials = [trial("young", 119, 1), trial("old", 120, 60)]
    assert chosen(trials, Demand(0, 2), NOW, 120.0) == {"old"}


def test_whole_devices_leave_with_all_their_trials_or_not_at_all() -> None:
    """The device whose trials lose the least together; one with a young trial stays whole."""
    trials = [
        trial("a1", 900, 30, "gpu-a"),
        trial("a2", 900, 30, "gpu-a"),
        trial("b1", 900, 10, "gpu-b"),
        trial("b2", 900, 45, "gpu-b"),
        trial("c1", 900, 0, "gpu-c"),
        trial("c2", 10, 0, "gpu-c"),
    ]
    assert chosen(trials, Demand(1, 0), NOW, 120.0) == {"b1", "b2"}
    assert chosen(trials, Demand(2, 0), NOW, 120.0) == {"a1", "a2", "b1", "b2"}
    assert chosen(trials, Demand(3, 0), NOW, 120.0) == {"a1", "a2", "b1", "b2"}
    assert chosen(trials, Demand(1, 1), NOW, 120.0) == {"b1", "b2", "c1"}


TRIALS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 400), st.sampled_from([None, "a", "b"]), st.booleans()),
    max_size=9,
).map(
    lambda rows: [
        replace(trial(f"t{k}", max(age, work), work, engine), leaving=leaving)
        for k, (age, work, engine, leaving) in enumerate(rows)
    ]
)


@given(TRIALS, st.integers(0, 3), st.integers(0, 5), st.integers(0, 300))
def test_whatever_runs_no_more_than_asked_and_none_too_young_leaves(
    trials: list[SheddableTrial], devices: int, single: int, min_run: int
) -> None:
    leaving = chosen(trials, Demand(devices, single), NOW, min_run)
    own = {entry.key: entry for entry in trials}
    assert all(NOW - own[key].started >= min_run for key in leaving)
    groups = {own[key].engine or key for key in leaving}
    assert len(groups) <= devices + single
    old = [entry for entry in trials if NOW - entry.started >= min_run]
    assert len(leaving) >= min(single, len(old))


@pytest.mark.parametrize(
    ("priority_class", "restart", "seconds"),
    [("normal", 0.0, 120.0), ("urgent", 12.0, 120.0), ("normal", 30.0, 300.0), ("idle", 30.0, 0.0)],
)
def test_the_minimum_run_is_two_minutes_or_ten_restarts_and_none_for_idle(
    priority_class: str, restart: float, seconds: float
) -> None:
    assert minimum_run(cpu_claim("a", "ada", 1, priority_class=priority_class), restart) == seconds


# ------------------------------------------------------------------ which sweeps


def test_nothing_is_asked_for_before_the_shortage_has_lasted() -> None:
    claims = [cpu_claim("a", "ada", 8), cpu_claim("b", "bob", 8)]
    assert demands(pool(claims, {"a": 8}, short_since=LONG + 1.0)) == {}
    assert demands(pool(claims, {"a": 8})) == {"a": Demand(0, 4)}


def test_what_is_free_or_leaving_is_not_asked_for_again() -> None:
    claims = [cpu_claim("a", "ada", 8), cpu_claim("b", "bob", 8)]
    assert demands(pool(claims, {"a": 8}, cores=10)) == {"a": Demand(0, 3)}, "two cores are free"
    asked = demands(pool(claims, {"a": 8}, a={"leaving": 4}))
    assert asked == {"a": Demand(0, 4)}, "those that are leaving are part of the demand, not added to it"


def test_those_furthest_above_their_shares_by_weight_give_up_first() -> None:
    claims = [cpu_claim("a", "ada", 12), cpu_claim("b", "bob", 12), cpu_claim("c", "cyd", 12)]
    asked = demands(pool(claims, {"a": 7, "b": 5}, cores=12))
    assert asked == {"a": Demand(0, 3), "b": Demand(0, 1)}
    heavy = [replace(claims[0], weight=8 * UNIT), *claims[1:]]
    few = {"c": {"trials": 3, "short_since": LONG}}
    assert demands(pool(heavy, {"a": 5, "b": 5}, cores=13, c=few["c"])) == {"b": Demand(0, 1)}


def test_an_idle_sweep_gives_up_before_a_normal_one() -> None:
    claims = [
        cpu_claim("a", "ada", 8),
        cpu_claim("idle", "bob", 8, priority_class="idle"),
        cpu_claim("c", "cyd", 3, priority_class="normal"),
    ]
    assert demands(pool(claims, {"a": 6, "idle": 2})) == {"idle": Demand(0, 2), "a": Demand(0, 1)}


def test_a_sweep_within_its_share_gives_up_nothing() -> None:
    claims = [cpu_claim(f"s{k}", f"o{k}", 8) for k in range(4)]
    asked = demands(pool(claims, {"s0": 4, "s1": 2, "s2": 2}))
    assert asked == {"s0": Demand(0, 2)}


def test_whole_devices_are_asked_for_where_trials_share_them() -> None:
    claims = [gpu_claim("a", "ada", 16, slots=4), gpu_claim("b", "bob", 16, slots=4)]
    assert demands(pool(claims, {"a": 16}, cores=64, devices=4)) == {"a": Demand(2, 0)}


def test_a_reservation_lapses_when_granted_attempts_find_no_room() -> None:
    """The free processors are in pieces: others may use them, and nobody gives anything up for them."""
    claims = [cpu_claim("a", "ada", 8), cpu_claim("b", "bob", 8)]
    waits = {"pending": 1, "trials": 1, "short_since": LONG}
    late, early = NOW - RULES.lapse_after, NOW - RULES.lapse_after + 1.0
    reserved = pool(claims, {"a": 7}, b={**waits, "pending_since": early})
    assert reserved.reserves("b")
    assert not reserved.may_start("a")
    assert demands(reserved) == {"a": Demand(0, 3)}
    lapsed = pool(claims, {"a": 7}, b={**waits, "pending_since": late})
    assert not lapsed.reserves("b")
    assert lapsed.may_start("a"), "what the waiting attempt was granted is free"
    assert demands(lapsed) == {}


@pytest.mark.parametrize("hours", [None, 1.0])
def test_an_owner_over_the_quota_of_gpu_hours_gives_up_all_devices_at_once(hours: float | None) -> None:
    """Although nobody is short; trials without a GPU go on."""
    owner = Owner("ada", most_gpu_hours=hours, week_gpu_seconds=3_600)
    claims = [gpu_claim("a", "ada", 8, slots=2), cpu_claim("c", "ada", 4)]
    asked = demands(pool(claims, {"a": 6, "c": 4}, cores=64, devices=4, owners=(owner,)))
    assert asked == ({} if hours is None else {"a": Demand(3, 0)})


def test_an_owner_over_the_quota_of_the_pool_gives_up_the_rest_at_once() -> None:
    claims = [gpu_claim("a", "ada", 8, slots=2)]
    owner = Owner("ada", most_share=UNIT // 2)
    assert demands(pool(claims, {"a": 8}, cores=64, devices=4, owners=(owner,))) == {"a": Demand(2, 0)}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ada", "bob", "cyd"]),
            st.integers(0, 10),
            st.integers(0, 10),
            st.sampled_from(CLASSES),
        ),
        min_size=2,
        max_size=6,
    )
)
def test_no_sweep_is_asked_for_more_than_it_holds_above_its_share(
    rows: list[tuple[str, int, int, str]],
) -> None:
    """And all together are asked for no more than the shortages, rounded up to a trial of each sweep."""
    claims = [
        cpu_claim(f"s{k}", owner, max(want, held), created=float(k), priority_class=kind)
        for k, (owner, want, held, kind) in enumerate(rows)
    ]
    held = {f"s{k}": trials for k, (_, _, trials, _) in enumerate(rows)}
    view = pool(claims, held, cores=max(1, sum(held.values())))
    uses = {sweep: replace(use, short_since=LONG) for sweep, use in view.uses.items()}
    view = replace(view, uses=uses)
    asked = demands(view)
    for sweep, demand in asked.items():
        assert demand.trials + demand.devices > 0
        assert demand.trials <= view.uses[sweep].trials - view.shares[sweep].trials
    missing = sum(view.shortage(sweep) for sweep in view.claims)
    assert sum(demand.trials for demand in asked.values()) <= missing


# ------------------------------------------------------------------ the same, computed the obvious way


def plain_demands(view: View) -> dict[str, Demand]:
    """Return the demands with a pass over all rows for every trial that is asked for."""
    free_cpu, free_devices = plain_free(view)
    short = [
        (sweep, use)
        for sweep, use in view.uses.items()
        if use.short_since is not None and view.now - use.short_since >= RULES.shed_after
    ]
    short = [(sweep, use) for sweep, use in short if view.reserves(sweep)]
    cpu = sum(view.shortage(sweep) * view.claims[sweep].all_cpu for sweep, _ in short) - free_cpu
    devices = sum(max(0, view.shares[sweep].devices - use.devices) for sweep, use in short) - free_devices
    one = {sweep: max(1, claim.device * claim.nodes) for sweep, claim in view.claims.items()}
    above = {
        sweep: [
            max(0, use.devices - view.shares[sweep].devices) // one[sweep],
            use.trials - view.shares[sweep].trials,
        ]
        for sweep, use in view.uses.items()
        if use.trials > view.shares[sweep].trials or use.devices > view.shares[sweep].devices
    }
    given = {sweep: [0, 0] for sweep in above}
    asked = {}
    per_device = {
        sweep: max(1, use.trials // max(1, use.devices // one[sweep])) for sweep, use in view.uses.items()
    }
    within = {sweep for sweep in above if plain_within_quotas(view, sweep)}

    def order(sweep: str) -> tuple[bool, int, float, float, str]:
        claim, (most_devices, most_trials) = view.claims[sweep], above[sweep]
        trials = given[sweep][0] * per_device[sweep] + given[sweep][1]
        left_devices = max(0, most_devices - given[sweep][0]) * claim.device * claim.nodes
        left_cpu = max(0, most_trials - trials) * claim.cpu * claim.nodes
        part = view.capacity.dominant(left_cpu, left_devices) * UNIT // claim.weight
        is_leaving = trials < view.uses[sweep].leaving
        return not is_leaving, -CLASSES.index(claim.priority_class), -part, -claim.created, sweep

    can = set(within)
    while can and (cpu > 0 or devices > 0):
        sweep = min(can, key=order)
        (most_devices, most_trials), held = above[sweep], given[sweep]
        if devices > 0 and held[0] < most_devices:
            held[0] += 1
            devices -= one[sweep]
            cpu -= per_device[sweep] * view.claims[sweep].all_cpu
        elif cpu > 0 and held[0] * per_device[sweep] + held[1] < most_trials:
            held[1] += 1
            cpu -= view.claims[sweep].all_cpu
        else:
            can.remove(sweep)
            continue
        asked[sweep] = Demand(*held)
    for sweep in above.keys() - within:
        most_devices, most_trials = above[sweep]
        asked[sweep] = Demand(most_devices, max(0, most_trials - most_devices * per_device[sweep]))
    return asked


def plain_free(view: View) -> tuple[int, int]:
    """Return the cores and devices that no attempt holds; none of these pools has a pending attempt."""
    cpu = sum(use.trials * view.claims[sweep].all_cpu for sweep, use in view.uses.items())
    devices = sum(use.devices for use in view.uses.values())
    return max(0, view.capacity.cpu - cpu), max(0, view.capacity.devices - devices)


def plain_within_quotas(view: View, sweep: str) -> bool:
    """Return True if the owner of a sweep holds no more than its quotas."""
    claim = view.claims[sweep]
    owner, own = view.owner_of(claim), [one for one in view.claims.values() if one.owner == claim.owner]
    if not owner.most_share or (
        claim.slots
        and owner.most_gpu_hours is not None
        and owner.week_gpu_seconds >= owner.most_gpu_hours * 3600
    ):
        return False
    cpu = sum(view.uses[one.sweep].trials * one.all_cpu for one in own)
    part = view.capacity.dominant(cpu, sum(view.uses[one.sweep].devices for one in own))
    return owner.most_share >= UNIT or not cpu or part * UNIT <= view.capacity.whole * owner.most_share


@given(st.integers(0, 10**9))
@settings(max_examples=300, deadline=None)
def test_decisions_equal_those_of_the_obvious_way(seed: int) -> None:
    chance, world = random.Random(seed), random_world(seed)
    uses = []
    for claim in world.claims:
        trials = chance.randint(0, 20)
        bundles = -(-trials // claim.slots) + chance.randint(0, 1) if claim.slots else 0
        devices = bundles * claim.device * claim.nodes
        since = chance.choice([None, NOW - 1.0, LONG, LONG - 100.0])
        leaving = chance.randint(0, trials)
        uses.append(Use(claim.sweep, NOW, trials, 0, devices, leaving, since, None))
    view = View.of(Snapshot(world.nodes, world.owners, world.claims, tuple(uses)), NOW)
    assert demands(view) == plain_demands(view)
    assert view.free == plain_free(view)
    for claim in world.claims:
        assert view.within_quotas(claim) == plain_within_quotas(view, claim.sweep)
