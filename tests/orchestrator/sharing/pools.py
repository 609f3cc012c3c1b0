"""A pool whose drivers decide second by second, as real ones do; nothing is trained."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from orchestrator.sharing import shedding
from orchestrator.sharing.pool_rows import RULES, UNIT, Owner, PoolClaim, PoolNode, Rules, Snapshot, Use
from orchestrator.sharing.shedding import SheddableTrial
from orchestrator.sharing.view import View, renewed

INTERVAL = 10.0
"""Seconds between two reports of a trial."""


@dataclass
class Driver:
    """The process of one sweep, and the trials that run.

    Attributes:
        claim: of the sweep.
        trials: that run, by key.
        is_alive: False once the process was killed; its trials have ended, its rows remain.
    """

    claim: PoolClaim
    trials: dict[str, SheddableTrial] = field(default_factory=dict)
    is_alive: bool = True


@dataclass(frozen=True)
class Shed:
    """A trial that was given up.

    Attributes:
        sweep: of the trial.
        age: seconds for which it ran.
    """

    sweep: str
    age: float


class Pool:
    """Drivers, their rows and one clock.

    Args:
        cores: of the one node.
        owners: rows.
        rules: of the pool.
        seed: for the order in which the drivers decide.
    """

    def __init__(
        self, cores: int, owners: tuple[Owner, ...] = (), rules: Rules = RULES, seed: int = 0
    ) -> None:
        self.rows = Snapshot((PoolNode("node", cores * UNIT),), owners)
        self.rules, self.now = rules, 1_000_000.0
        self.drivers: dict[str, Driver] = {}
        self.sheds: list[Shed] = []
        self._chance, self._launched = random.Random(seed), 0

    def view(self) -> View:
        """Return what a driver would see now."""
        return View.of(self.rows, self.now, self.rules)

    def join(self, claim: PoolClaim) -> None:
        """Start the driver of a sweep."""
        self.drivers[claim.sweep] = Driver(claim)

    def want(self, sweep: str, trials: int) -> None:
        """Let a sweep want another number of trials."""
        driver = self.drivers[sweep]
        driver.claim = replace(driver.claim, want=trials)

    def leave(self, sweep: str) -> None:
        """End a driver, which withdraws its claim."""
        del self.drivers[sweep]
        self.rows = self._without(sweep)

    def kill(self, sweep: str) -> None:
        """Kill a driver, and its trials with it; its rows stay."""
        self.drivers[sweep].is_alive = False
        self.drivers[sweep].trials.clear()

    def finish(self, sweep: str) -> None:
        """Let the oldest trial of a sweep finish, if one runs."""
        trials = self.drivers[sweep].trials
        if trials:
            del trials[min(trials, key=lambda key: trials[key].started)]

    def held(self) -> dict[str, int]:
        """Return how many trials each driver runs."""
        return {sweep: len(driver.trials) for sweep, driver in self.drivers.items()}

    def run(self, seconds: float) -> None:
        """Let time pass: every second, all drivers decide, in a random order."""
        for _ in range(round(seconds)):
            self.now += 1.0
            order = [driver for driver in self.drivers.values() if driver.is_alive]
            self._chance.shuffle(order)
            for driver in order:
                self.turn(driver)

    def turn(self, driver: Driver) -> None:
        """Let one driver renew its claim, shed what it must and start what it may."""
        self._report(driver)
        view = self._renew(driver)
        demand = shedding.demands(view).get(driver.claim.sweep)
        leaving: frozenset[str] = frozenset()
        if demand is not None:
            seconds = shedding.minimum_run(driver.claim, 0.0, self.rules)
            leaving = shedding.chosen(driver.trials.values(), demand, self.now, seconds)  # type: ignore[arg-type]
        for key, trial in driver.trials.items():
            driver.trials[key] = replace(trial, leaving=key in leaving)
        while self._renew(driver).may_start(driver.claim.sweep):
            self._launched += 1
            key = f"{driver.claim.sweep}-{self._launched}"
            driver.trials[key] = SheddableTrial(key, None, self.now, self.now)

    def _report(self, driver: Driver) -> None:
        for key, trial in list(driver.trials.items()):
            if self.now - trial.reported < INTERVAL:
                continue
            driver.trials[key] = replace(trial, reported=self.now)
            if trial.leaving:
                self.sheds.append(Shed(driver.claim.sweep, self.now - trial.started))
                del driver.trials[key]

    def _renew(self, driver: Driver) -> View:
        sweep = driver.claim.sweep
        before = next((use for use in self.rows.uses if use.sweep == sweep), None)
        leaving = sum(trial.leaving for trial in driver.trials.values())
        use = Use(sweep, self.now, len(driver.trials), leaving=leaving)
        use = replace(use, short_since=before.short_since if before else None)
        others = self._without(sweep)
        rows = replace(others, claims=(*others.claims, driver.claim), uses=(*others.uses, use))
        use = renewed(View.of(rows, self.now, self.rules), use)
        self.rows = replace(rows, uses=(*others.uses, use))
        return self.view()

    def _without(self, sweep: str) -> Snapshot:
        return replace(
            self.rows,
            claims=tuple(claim for claim in self.rows.claims if claim.sweep != sweep),
            uses=tuple(use for use in self.rows.uses if use.sweep != sweep),
        )
