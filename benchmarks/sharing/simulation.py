"""Drivers that share a pool through rows, second by second; only the machines and the training are simulated."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from benchmarks.sharing.load import Scenario, Sweep
from orchestrator.sharing.rows import Claim, DriverState, Holding, Owner, Pool, Snapshot
from orchestrator.sharing.rules import Rules
from orchestrator.sharing.shed import RunningTrial
from orchestrator.sharing.turn import Turn
from orchestrator.sharing.view import view

Policy = Callable[[Snapshot, str, Sequence[RunningTrial], float, float, Rules], Turn | None]
"""(rows, sweep, its running trials, now, seconds of a restart, rules) -> what its driver does."""

CUT = 120.0
"""Seconds after which a trial that is to leave is ended without waiting for its report."""


@dataclass
class Running:
    """A trial while it runs: launched, starting for `restart` seconds, then working."""

    key: str
    node: str
    device: int | None
    started: float
    left: float
    saved: float
    reported: float
    asked: float | None = None


@dataclass
class Driver:
    """A sweep's driver, with the trials that have not ended."""

    sweep: Sweep
    queue: list[tuple[str, float]]
    running: dict[str, Running] = field(default_factory=dict)
    down_until: float = 0.0
    crashes: list[float] = field(default_factory=list)


@dataclass
class Outcome:
    """What a simulation has measured.

    Attributes:
        sheds: trials that were given up for other sweeps.
        lost: seconds of places spent on starting shed trials again, and on work that was cut before a report.
        busy: seconds of places in which a trial held them.
        capacity: seconds of places in all.
        shortages: lengths of all shortages, in seconds.
        gaps: owner -> longest time in which it wanted trials and ran none, in seconds.
        too_young: trials that were shed before their minimum run time.
        history: time -> owner -> cores (1/10,000) held.
        targets: time -> owner -> cores (1/10,000) of its shares.
    """

    sheds: int = 0
    lost: float = 0.0
    busy: float = 0.0
    capacity: float = 0.0
    shortages: list[float] = field(default_factory=list)
    gaps: dict[str, float] = field(default_factory=dict)
    ages: list[float] = field(default_factory=list)
    held_seconds: Counter[str] = field(default_factory=Counter)
    history: dict[float, Counter[str]] = field(default_factory=dict)
    targets: dict[float, Counter[str]] = field(default_factory=dict)


class Simulation:
    """One pool, its drivers and the rows between them."""

    def __init__(self, scenario: Scenario, policy: Policy, rules: Rules, seed: int = 0) -> None:
        self.scenario, self._policy, self._rules = scenario, policy, rules
        self.outcome = Outcome()
        self._chance = random.Random(seed)
        self._drivers = {
            sweep.name: Driver(
                sweep,
                [(f"{sweep.name}-{k}", work) for k, work in enumerate(sweep.trials)],
                crashes=list(sweep.crashes),
            )
            for sweep in scenario.sweeps
        }
        self._owners = {owner.name: owner for owner in scenario.owners}
        self._claims: dict[str, Claim] = {}
        self._states: dict[str, DriverState] = {}
        self._version = 0
        self._seen: dict[str, int] = {}
        self._short_since: dict[str, float] = {}
        self._waiting_since: dict[str, float] = {}
        self._keys = count()
        self._units = sum(node.devices or node.cpu // 10_000 for node in scenario.nodes)

    def run(self) -> Outcome:
        """Simulate the hours of the scenario."""
        for second in range(int(self.scenario.hours * 3600)):
            now = float(second)
            for driver in self._drivers.values():
                self._train(driver, now)
                self._live(driver, now)
            order = list(self._claims)
            self._chance.shuffle(order)
            for sweep in order:
                self._act(self._drivers[sweep], now)
            self._measure(now)
        for since in self._short_since.values():
            self.outcome.shortages.append(now - since)
        self._end_gaps(now, set(self._waiting_since))
        return self.outcome

    def snapshot(self) -> Snapshot:
        """Return all rows."""
        rows: Counter[tuple[str, str, int | None]] = Counter()
        leaving: Counter[tuple[str, str, int | None]] = Counter()
        for name, driver in self._drivers.items():
            if name in self._claims:
                for trial in driver.running.values():
                    rows[name, trial.node, trial.device] += 1
                    leaving[name, trial.node, trial.device] += trial.asked is not None
        return Snapshot(
            Pool(self.scenario.nodes, self._version),
            tuple(self._owners.values()),
            tuple(self._claims.values()),
            tuple(self._states.values()),
            tuple(Holding(*key, trials, leaving[key]) for key, trials in rows.items()),
        )

    def _live(self, driver: Driver, now: float) -> None:
        """Kill a driver, start it again, and write its claim."""
        name = driver.sweep.name
        if driver.crashes and now >= driver.crashes[0]:
            driver.crashes.pop(0)
            driver.down_until = now + self.scenario.recovery
            driver.queue[:0] = [(trial.key, trial.saved) for trial in driver.running.values()]
            driver.running.clear()
        if now < max(driver.sweep.submitted, driver.down_until):
            return
        want = len(driver.queue) + len(driver.running)
        if not want:
            if self._claims.pop(name, None):
                del self._states[name]
                self._version += 1
            return
        sweep = driver.sweep
        claim = Claim(
            name, sweep.owner, sweep.submitted, sweep.cpu, sweep.slots,
            min(want, sweep.concurrent or want), None, sweep.priority_class,
        )  # fmt: skip
        if self._claims.get(name) != claim:
            self._claims[name] = claim
            self._states.setdefault(name, DriverState(name, "token", now))
            self._version += 1

    def _train(self, driver: Driver, now: float) -> None:
        """Let a second of training pass."""
        for key, trial in list(driver.running.items()):
            if now <= trial.started + self.scenario.restart:
                continue
            trial.left -= 1
            report = trial.saved - trial.left >= self.scenario.interval
            if trial.left <= 0:
                self._end(driver, key)
            elif report:
                trial.saved, trial.reported = trial.left, now
            if trial.asked is not None and trial.left > 0 and (report or now - trial.asked >= CUT):
                self.outcome.sheds += 1
                self.outcome.ages.append(now - trial.started)
                place = self._place(driver.sweep)
                self.outcome.lost += (self.scenario.restart + trial.saved - trial.left) * place
                driver.queue.insert(0, (key, trial.saved))
                self._end(driver, key)

    def _end(self, driver: Driver, key: str) -> None:
        del driver.running[key]
        self._version += 1

    def _act(self, driver: Driver, now: float) -> None:
        """Let a driver take its turn, unless nothing can have changed for it."""
        name = driver.sweep.name
        if now < driver.down_until:
            return
        state = self._states[name]
        quiet = state.short_since is None and self._seen.get(name) == self._version
        if quiet and now - state.beat < 10:
            return
        trials = [
            RunningTrial(each.key, each.node, each.device, each.started, each.reported, each.asked is not None)
            for each in driver.running.values()
        ]
        decided = self._policy(self.snapshot(), name, trials, now, self.scenario.restart, self._rules)
        if decided is None:
            self._states[name] = DriverState(name, "token", now)
            return
        self._carry_out(driver, decided, now)
        self._seen[name] = self._version

    def _carry_out(self, driver: Driver, decided: Turn, now: float) -> None:
        for sweep in decided.expired:
            self._claims.pop(sweep, None)
            self._states.pop(sweep, None)
            self._version += 1
        for grant in decided.grants:
            key, work = driver.queue.pop(0)
            driver.running[key] = Running(key, grant.node, grant.device, now, work, work, now)
            self._version += 1
        for trial in driver.running.values():
            leaves = trial.key in decided.leaving
            if leaves != (trial.asked is not None):
                trial.asked = now if leaves else None
                self._version += 1
        for owner in decided.owners:
            self._owners[owner.name] = owner
            self._version += 1
        before = self._states[driver.sweep.name]
        if replace(before, beat=now) != replace(decided.state, beat=now):
            self._version += 1
        self._states[driver.sweep.name] = decided.state

    def _place(self, sweep: Sweep) -> float:
        """Return the places that one trial takes: devices, or cores in a pool without."""
        return 1 / sweep.slots if sweep.slots else sweep.cpu / 10_000

    def _measure(self, now: float) -> None:
        seen = view(self.snapshot(), now, self._rules)
        self.outcome.capacity += self._units
        short: set[str] = set()
        for name, claim in seen.claims.items():
            held = seen.occupancy.of(name)
            self.outcome.busy += held.devices if claim.slots else held.trials * claim.cpu / 10_000
            self.outcome.held_seconds[claim.owner] += held.trials
            if held.trials < seen.shares[name].trials:
                short.add(name)
                self._short_since.setdefault(name, now)
        for name in self._short_since.keys() - short:
            self.outcome.shortages.append(now - self._short_since.pop(name))
        runs = {seen.claims[name].owner for name in seen.claims if seen.occupancy.of(name).trials}
        waits = {claim.owner for claim in seen.claims.values()} - runs
        for owner in waits:
            self._waiting_since.setdefault(owner, now)
        self._end_gaps(now, self._waiting_since.keys() - waits)
        if now % 20 == 0:
            self.outcome.history[now] = Counter()
            self.outcome.targets[now] = Counter()
            for name, claim in seen.claims.items():
                self.outcome.history[now][claim.owner] += seen.occupancy.of(name).trials
                self.outcome.targets[now][claim.owner] += seen.shares[name].trials

    def _end_gaps(self, now: float, owners: set[str]) -> None:
        for owner in owners:
            gap = now - self._waiting_since.pop(owner)
            self.outcome.gaps[owner] = max(gap, self.outcome.gaps.get(owner, 0.0))
