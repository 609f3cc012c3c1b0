"""Drivers that share a pool keep to their shares, whatever they do and whichever of them dies."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orchestrator.sharing.pool_rows import CLASSES, RULES, UNIT, Owner
from tests.orchestrator.sharing.pools import INTERVAL, Pool
from tests.orchestrator.sharing.worlds import cpu_claim

SETTLED = RULES.dead_after + RULES.shed_after + RULES.min_run + 2 * INTERVAL + 10.0
"""Seconds after which all drivers hold their shares if no claim changes: a bound, not a measurement."""


def test_a_sweep_alone_starts_everything_at_once() -> None:
    pool = Pool(8)
    pool.join(cpu_claim("a", "ada", 20))
    pool.run(1)
    assert pool.held() == {"a": 20}, "a sweep that is alone leaves to Ray what fits"


def test_a_second_sweep_gets_its_share_from_the_first_one() -> None:
    """Within `shed_after`, `min_run` and an interval, half of the pool changes hands, and no more."""
    pool = Pool(8)
    pool.join(cpu_claim("a", "ada", 8))
    pool.run(60)
    pool.join(cpu_claim("b", "bob", 8))
    pool.run(30)
    assert pool.held() == {"a": 8, "b": 0}
    pool.run(RULES.min_run + INTERVAL)
    assert pool.held() == {"a": 4, "b": 4}
    assert [shed.sweep for shed in pool.sheds] == ["a"] * 4
    assert min(shed.age for shed in pool.sheds) >= RULES.min_run


def test_a_place_that_becomes_free_is_reserved_for_the_sweep_that_is_short() -> None:
    pool = Pool(4)
    pool.join(cpu_claim("a", "ada", 40))
    pool.drivers["a"].claim = cpu_claim("a", "ada", 4)
    pool.run(5)
    pool.join(cpu_claim("b", "bob", 4))
    pool.run(1)
    pool.finish("a")
    pool.finish("a")
    pool.run(2)
    assert pool.held() == {"a": 2, "b": 2}
    assert not pool.sheds


def test_a_dead_claim_frees_its_resources_once() -> None:
    pool = Pool(4)
    for sweep, owner in (("a", "ada"), ("b", "bob")):
        pool.join(cpu_claim(sweep, owner, 4))
    pool.run(SETTLED)
    assert pool.held() == {"a": 2, "b": 2}
    pool.kill("a")
    pool.run(RULES.dead_after - 5)
    assert pool.held() == {"a": 0, "b": 2}
    pool.run(10)
    assert pool.held() == {"a": 0, "b": 4}


def test_sweeps_of_one_owner_get_together_what_one_sweep_of_another_owner_gets() -> None:
    pool = Pool(12)
    for k in range(3):
        pool.join(cpu_claim(f"a{k}", "ada", 12))
    pool.join(cpu_claim("b", "bob", 12))
    pool.run(SETTLED)
    assert pool.held() == {"a0": 2, "a1": 2, "a2": 2, "b": 6}


def test_an_owner_over_a_quota_gives_up_the_rest_although_nobody_wants_it() -> None:
    pool = Pool(10)
    pool.join(cpu_claim("a", "ada", 10))
    pool.run(RULES.min_run)
    pool.rows = Pool(10, (Owner("ada", most_share=UNIT // 2),)).rows
    pool.run(2 * INTERVAL)
    assert pool.held() == {"a": 5}


def longest_wait(owners: int, interval: float = INTERVAL) -> float:
    """Return the seconds within which an owner with a share runs a trial, as docs/sharing.md states it.

    A sweep that holds a place above its share got it before the owner came, because nothing starts above a
    share while another sweep is short. After `min_run` each of them may be shed. Owners who came later may
    take the place first, once each.
    """
    return max(RULES.shed_after, RULES.min_run) + owners * interval + owners


@given(data=st.data(), owners=st.integers(2, 5), seed=st.integers(0, 1_000))
@settings(max_examples=8, deadline=None)
def test_every_owner_with_a_share_runs_within_a_bound(data: st.DataObject, owners: int, seed: int) -> None:
    """Trials never end, so that every place must be given up by those who hold too many."""
    places = data.draw(st.integers(owners, 8))
    names = [f"owner{number}" for number in range(owners)]
    weights = {name: data.draw(st.sampled_from([UNIT // 2, UNIT, UNIT, 2 * UNIT])) for name in names}
    arrivals = dict(zip(names, sorted(data.draw(st.integers(0, 180)) for _ in names), strict=True))
    wants = {name: data.draw(st.integers(1, 8)) for name in names}
    pool = Pool(places, tuple(Owner(name, weight=weight) for name, weight in weights.items()), seed=seed)
    pool.join(cpu_claim("nobody", "nobody", 0))  # so that no sweep is ever alone
    waited: dict[str, float] = {}
    first = pool.now
    while len(waited) < owners:
        for name in names:
            if name not in pool.drivers and pool.now - first >= arrivals[name]:
                pool.join(cpu_claim(name, name, wants[name], created=pool.now))
        pool.run(1)
        for name in pool.drivers.keys() - waited.keys() - {"nobody"}:
            since = pool.now - first - arrivals[name]
            shares = pool.view().shares
            if pool.drivers[name].trials:
                waited[name] = since
            assert not shares[name].trials or since <= longest_wait(owners), (name, since)
            if not shares[name].trials:
                return  # more weight elsewhere: this owner has no share, and no bound


class PoolMachine(RuleBasedStateMachine):
    """Drivers join, leave, die, finish trials and change what they want; time passes."""

    @initialize(cores=st.integers(1, 12), seed=st.integers(0, 1_000))
    def begin(self, cores: int, seed: int) -> None:
        self.pool, self.cores, self.joined = Pool(cores, seed=seed), cores, 0
        # No driver is ever alone, so that what fits is decided by the rows.
        self.pool.join(cpu_claim("waiting", "dan", 0))
        self.pool.run(1)

    @rule(
        owner=st.sampled_from(["ada", "bob", "cyd"]), want=st.integers(1, 15), kind=st.sampled_from(CLASSES)
    )
    def join(self, owner: str, want: int, kind: str) -> None:
        self.joined += 1
        self.pool.join(cpu_claim(f"s{self.joined}", owner, want, created=self.pool.now, priority_class=kind))

    @precondition(lambda self: self.living)
    @rule(data=st.data(), want=st.integers(0, 15))
    def change(self, data: st.DataObject, want: int) -> None:
        sweep = data.draw(st.sampled_from(self.living))
        self.pool.want(sweep, max(want, len(self.pool.drivers[sweep].trials)))

    @precondition(lambda self: self.living)
    @rule(data=st.data(), how=st.sampled_from(["leave", "kill", "finish"]))
    def end(self, data: st.DataObject, how: str) -> None:
        getattr(self.pool, how)(data.draw(st.sampled_from(self.living)))

    @rule(seconds=st.sampled_from([1, 3, 20, 60, 200]))
    def wait(self, seconds: int) -> None:
        self.pool.run(seconds)

    @rule()
    def settle(self) -> None:
        """With fixed claims, every driver comes to hold its share; sheds are no more than the surplus."""
        self.pool.run(RULES.dead_after + 2)
        view, held, before = self.pool.view(), self.pool.held(), len(self.pool.sheds)
        surplus = sum(max(0, held[sweep] - view.shares[sweep].trials) for sweep in view.claims)
        self.pool.run(2 * SETTLED)
        assert len(self.pool.sheds) - before <= surplus
        view, held = self.pool.view(), self.pool.held()
        assert {sweep: held[sweep] for sweep in view.claims} == {
            sweep: share.trials for sweep, share in view.shares.items()
        }

    @property
    def living(self) -> list[str]:
        drivers = self.pool.drivers.items()
        return [sweep for sweep, driver in drivers if driver.is_alive and sweep != "waiting"]

    @invariant()
    def no_more_runs_than_fits(self) -> None:
        if hasattr(self, "pool"):
            assert sum(self.pool.held().values()) <= self.cores

    @invariant()
    def no_trial_was_shed_before_its_minimum_run(self) -> None:
        if hasattr(self, "pool"):
            idle = {s for s, d in self.pool.drivers.items() if d.claim.priority_class == "idle"}
            kept = [
                shed.age for shed in self.pool.sheds if shed.sweep not in idle and shed.sweep in self.living
            ]
            assert min(kept, default=RULES.min_run) >= RULES.min_run


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=8, stateful_step_count=10, deadline=None)
