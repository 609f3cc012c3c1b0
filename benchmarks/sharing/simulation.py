"""Drivers that share a pool through rows, second by second; only the machines and the training are simulated.

What fits is decided by the sums over all nodes: fragments of free resources are not simulated.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from benchmarks.sharing.load import Scenario, Sweep
from benchmarks.sharing.policies import Decision, Policy
from orchestrator.sharing.rows import UNIT, PoolClaim, Rules, Snapshot, Use
from orchestrator.sharing.shedding import RunningTrial
from orchestrator.sharing.usage import charged
from orchestrator.sharing.view import View, renewed

PLOT_SECONDS = 20
"""Time between two points of the picture."""


@dataclass
class Training:
    """A trial while it runs: launched, starting for `restart` seconds, then working.

    Attributes:
        key: of the trial.
        started: when it was launched.
        left: seconds of work left.
        saved: seconds of work left at the last report.
        reported: when that was.
        leaving: whether it ends at the next report.
    """

    key: str
    started: float
    left: float
    saved: float
    reported: float
    leaving: bool = False


@dataclass
class Driver:
    """A sweep's driver, with the trials that have not ended.

    Attributes:
        sweep: its load.
        queue: keys of the trials that do not run, and the seconds of work left of each.
        running: trials by key.
        down_until: when the driver is started again after it was killed.
        crashes: when it is killed.
    """

    sweep: Sweep
    queue: list[tuple[str, float]]
    running: dict[str, Training] = field(default_factory=dict)
    down_until: float = 0.0
    crashes: list[float] = field(default_factory=list)


@dataclass
class Outcome:
    """What a simulation has measured.

    Attributes:
        sheds: trials that were given up for other sweeps.
        lost: seconds of places spent on starting shed trials again.
        busy: seconds of places in which a trial held them.
        capacity: seconds of places in all.
        shortages: lengths of all shortages, in seconds.
        gaps: owner -> longest time in which it wanted trials and ran none, in seconds.
        ages: seconds that each shed trial had run.
        history: time -> owner -> trials held.
        targets: time -> owner -> trials of its shares.
    """

    sheds: int = 0
    lost: float = 0.0
    busy: float = 0.0
    capacity: float = 0.0
    shortages: list[float] = field(default_factory=list)
    gaps: dict[str, float] = field(default_factory=dict)
    ages: list[float] = field(default_factory=list)
    history: dict[float, Counter[str]] = field(default_factory=dict)
    targets: dict[float, Counter[str]] = field(default_factory=dict)


class Simulation:
    """One pool, its drivers and the rows between them.

    Args:
        scenario: the pool and its load.
        policy: of all drivers.
        rules: of the pool.
        seed: for the order in which the drivers decide.
    """

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
        self._claims: dict[str, PoolClaim] = {}
        self._uses: dict[str, Use] = {}
        self._charged_at: float | None = None
        self._short_since: dict[str, float] = {}
        self._waiting_since: dict[str, float] = {}
        self._places = sum(node.devices or node.cpu // UNIT for node in scenario.nodes)

    def run(self) -> Outcome:
        """Simulate the hours of the scenario."""
        seconds = int(self.scenario.hours * 3600)
        for now in map(float, range(seconds)):
            for driver in self._drivers.values():
                self._train(driver, now)
                self._live(driver, now)
            order = list(self._claims)
            self._chance.shuffle(order)
            for sweep in order:
                if now >= self._drivers[sweep].down_until:
                    self._act(self._drivers[sweep], now)
            self._measure(now)
        self.outcome.shortages += [seconds - since for since in self._short_since.values()]
        self._end_gaps(float(seconds), set(self._waiting_since))
        return self.outcome

    def _view(self, now: float) -> View:
        rows = tuple(self._owners.values()), tuple(self._claims.values()), tuple(self._uses.values())
        return View.of(Snapshot(self.scenario.nodes, *rows), now, self._rules)

    def _live(self, driver: Driver, now: float) -> None:
        """Kill a driver, start it again, or end it."""
        name = driver.sweep.name
        if driver.crashes and now >= driver.crashes[0]:
            driver.crashes.pop(0)
            driver.down_until = now + self.scenario.recovery
            driver.queue[:0] = [(trial.key, trial.saved) for trial in driver.running.values()]
            driver.running.clear()
        if now < max(driver.sweep.submitted, driver.down_until):
            return
        sweep, want = driver.sweep, len(driver.queue) + len(driver.running)
        if not want:
            self._claims.pop(name, None)
            self._uses.pop(name, None)
            return
        want = min(want, sweep.concurrent or want)
        row = PoolClaim(
            name, sweep.owner, sweep.submitted, sweep.cpu, sweep.slots, want, sweep.priority_class
        )
        self._claims[name] = row
        self._uses.setdefault(name, Use(name, now))

    def _train(self, driver: Driver, now: float) -> None:
        """Let a second of training pass."""
        for key, trial in list(driver.running.items()):
            if now <= trial.started + self.scenario.restart:
                continue
            trial.left -= 1
            if trial.left <= 0:
                del driver.running[key]
            elif trial.saved - trial.left >= self.scenario.interval:
                trial.saved, trial.reported = trial.left, now
                if trial.leaving:
                    self._shed(driver, trial, now)

    def _shed(self, driver: Driver, trial: Training, now: float) -> None:
        self.outcome.sheds += 1
        self.outcome.ages.append(now - trial.started)
        self.outcome.lost += self.scenario.restart * self._place(driver.sweep)
        driver.queue.insert(0, (trial.key, trial.saved))
        del driver.running[trial.key]

    def _act(self, driver: Driver, now: float) -> None:
        """Let a driver decide, as often as it starts a trial."""
        name = driver.sweep.name
        while True:
            view = self._renew(driver, now)
            trials = [
                RunningTrial(trial.key, None, trial.started, trial.reported, trial.leaving)
                for trial in driver.running.values()
            ]
            decision: Decision = self._policy(view, name, trials, self.scenario.restart)
            for trial in driver.running.values():
                trial.leaving = trial.key in decision.leaving
            if not (decision.starts and driver.queue):
                return
            key, work = driver.queue.pop(0)
            driver.running[key] = Training(key, now, work, work, now)

    def _renew(self, driver: Driver, now: float) -> View:
        name, trials = driver.sweep.name, driver.running.values()
        slots = driver.sweep.slots
        before = self._uses[name]
        self._uses[name] = Use(
            name,
            now,
            len(trials),
            devices=-(-len(trials) // slots) if slots else 0,
            leaving=sum(trial.leaving for trial in trials),
            short_since=before.short_since,
        )
        view = self._view(now)
        use = self._uses[name] = renewed(view, self._uses[name])
        for owner in charged(view, self._charged_at):
            self._owners[owner.name], self._charged_at = owner, now
        return replace(view, uses={**view.uses, name: use})

    def _place(self, sweep: Sweep) -> float:
        """Return the places that one trial takes: devices, or cores in a pool without."""
        return 1 / sweep.slots if sweep.slots else sweep.cpu / UNIT

    def _measure(self, now: float) -> None:
        view = self._view(now)
        self.outcome.capacity += self._places
        for name, use in view.uses.items():
            self.outcome.busy += (
                use.devices if view.claims[name].slots else use.trials * view.claims[name].cpu / UNIT
            )
        short = {name for name in view.claims if view.shortage(name)}
        for name in short:
            self._short_since.setdefault(name, now)
        for name in self._short_since.keys() - short:
            self.outcome.shortages.append(now - self._short_since.pop(name))
        running = {claim.owner for name, claim in view.claims.items() if view.uses[name].trials}
        waiting = {claim.owner for claim in view.claims.values()} - running
        for owner in waiting:
            self._waiting_since.setdefault(owner, now)
        self._end_gaps(now, self._waiting_since.keys() - waiting)
        if now % PLOT_SECONDS == 0:
            held, target = Counter[str](), Counter[str]()
            for name, claim in view.claims.items():
                held[claim.owner] += view.uses[name].trials
                target[claim.owner] += view.shares[name].trials
            self.outcome.history[now], self.outcome.targets[now] = held, target

    def _end_gaps(self, now: float, owners: set[str]) -> None:
        for owner in owners:
            gap = now - self._waiting_since.pop(owner)
            self.outcome.gaps[owner] = max(gap, self.outcome.gaps.get(owner, 0.0))
