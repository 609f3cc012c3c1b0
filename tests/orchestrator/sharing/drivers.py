"""Drivers that share a pool, taken apart into the steps between which each of them can be killed or delayed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from orchestrator.sharing.rows import Claim, DriverState, Holding, Node, Owner, Pool, Snapshot
from orchestrator.sharing.rules import RULES, Rules
from orchestrator.sharing.shed import RunningTrial
from orchestrator.sharing.take import Grant, readmitted
from orchestrator.sharing.turn import Turn, turn
from orchestrator.sharing.view import View, view
from tests.orchestrator.sharing.rowstores import Rows


@dataclass
class Driver:
    """The process of one sweep: what it remembers, and the trials that really run.

    Attributes:
        claim: that it writes when it starts.
        token: of its lease; a new one after each start.
        trials: that run.
        granted: rows that are written, whose trials it has not launched yet.
        ended: trials that have ended, whose rows it has not written yet.
        plan: what it has decided, from rows of this version, and not written yet.
        lost: its claim has expired, and it does not know yet.
    """

    claim: Claim
    token: int = 0
    alive: bool = True
    trials: dict[str, RunningTrial] = field(default_factory=dict)
    granted: list[Grant] = field(default_factory=list)
    ended: list[RunningTrial] = field(default_factory=list)
    plan: tuple[int, Turn | None] | None = None


@dataclass(frozen=True)
class Shed:
    """A trial that left because it was asked to."""

    sweep: str
    age: float


class Drivers:
    """All drivers of a pool, their rows and one clock."""

    def __init__(
        self, rows: Rows, nodes: tuple[Node, ...], owners: tuple[Owner, ...], rules: Rules = RULES
    ) -> None:
        self.rows, self.rules, self.now = rows, rules, 1_000_000.0
        self.drivers: dict[str, Driver] = {}
        self.sheds: list[Shed] = []
        self._number = 0
        assert rows.write(0, Snapshot(Pool(nodes), owners))

    def view(self) -> View:
        """Return what a driver would see now."""
        return view(self.rows.read(), self.now, self.rules)

    def start(self, claim: Claim) -> None:
        """Start the driver of a sweep, which writes its claim; one that was killed starts without trials."""
        token = self.drivers[claim.sweep].token + 1 if claim.sweep in self.drivers else 1
        driver = self.drivers[claim.sweep] = Driver(claim, token)
        self._claim(driver, ())

    def change(self, sweep: str, want: int) -> None:
        """Let a driver write how many trials it wants now."""
        driver, rows = self.drivers[sweep], self.rows.read()
        if not self._owns(driver, rows):
            return
        driver.claim = replace(driver.claim, want=max(want, len(driver.trials) + len(driver.granted)))
        claims = tuple(driver.claim if row.sweep == sweep else row for row in rows.claims)
        assert self.rows.write(rows.pool.version, replace(rows, claims=claims))

    def decide(self, sweep: str) -> None:
        """Let a driver read the rows and decide; it writes nothing yet."""
        driver, rows = self.drivers[sweep], self.rows.read()
        decided = None
        if self._owns(driver, rows):
            decided = turn(rows, sweep, self._known(driver), self.now, rules=self.rules)
        driver.plan = rows.pool.version, decided

    def commit(self, sweep: str) -> bool:
        """Let a driver write what it has decided; return False if the rows have changed since it read them."""
        driver = self.drivers[sweep]
        assert driver.plan is not None
        (version, decided), driver.plan = driver.plan, None
        if decided is None:
            self._claim(driver, self._holdings(driver))
            return True
        rows = self.rows.read()
        if not self.rows.write(version, _after(rows, driver, decided)):
            return False
        driver.granted += decided.grants
        for key, trial in driver.trials.items():
            driver.trials[key] = replace(trial, leaving=key in decided.leaving)
        return True

    def launch(self, sweep: str) -> None:
        """Let a driver launch the trials whose rows are written."""
        driver = self.drivers[sweep]
        for grant in driver.granted:
            self._number += 1
            key = f"{sweep}-{self._number}"
            driver.trials[key] = RunningTrial(key, grant.node, grant.device, self.now, self.now)
        driver.granted.clear()

    def report(self, sweep: str) -> None:
        """Let all trials of a sweep report; those that were asked to leave end."""
        driver = self.drivers[sweep]
        for key, trial in list(driver.trials.items()):
            if trial.leaving:
                self.sheds.append(Shed(sweep, self.now - trial.started))
                driver.ended.append(driver.trials.pop(key))
            else:
                driver.trials[key] = replace(trial, reported=self.now)

    def finish(self, sweep: str) -> None:
        """Let the oldest trial of a sweep finish; another one is waiting to run."""
        driver = self.drivers[sweep]
        if driver.trials:
            driver.ended.append(driver.trials.pop(min(driver.trials)))

    def settle(self, sweep: str) -> None:
        """Let a driver write that trials have ended."""
        driver, rows = self.drivers[sweep], self.rows.read()
        driver.ended.clear()
        if self._owns(driver, rows):
            others = tuple(row for row in rows.holdings if row.sweep != sweep)
            holdings = others + self._holdings(driver)
            assert self.rows.write(rows.pool.version, replace(rows, holdings=holdings))

    def kill(self, sweep: str) -> None:
        """Kill a driver, and its trials with it; its rows stay."""
        driver = self.drivers[sweep]
        self.drivers[sweep] = Driver(driver.claim, driver.token, alive=False)

    def turn(self, sweep: str) -> None:
        """Let a driver do all steps of a turn at once."""
        self.settle(sweep)
        self.decide(sweep)
        assert self.commit(sweep)
        self.launch(sweep)

    def _owns(self, driver: Driver, rows: Snapshot) -> bool:
        tokens = {state.sweep: state.token for state in rows.states}
        return tokens.get(driver.claim.sweep) == str(driver.token)

    def _claim(self, driver: Driver, holdings: tuple[Holding, ...]) -> None:
        """Write a claim, in place of an earlier one of the sweep, with the holdings that still fit."""
        rows, sweep = self.rows.read(), driver.claim.sweep
        others = replace(
            rows,
            claims=tuple(row for row in rows.claims if row.sweep != sweep),
            states=tuple(row for row in rows.states if row.sweep != sweep),
            holdings=tuple(row for row in rows.holdings if row.sweep != sweep),
        )
        seen = view(others, self.now, self.rules)
        kept = readmitted(seen, driver.claim, holdings)
        written = replace(
            others,
            claims=(*(row for row in others.claims if row.sweep in seen.claims), driver.claim),
            states=(*seen.states.values(), DriverState(sweep, str(driver.token), self.now)),
            holdings=(*(row for row in others.holdings if row.sweep in seen.claims), *kept),
        )
        assert self.rows.write(rows.pool.version, written)
        _keep(driver, kept)

    def _known(self, driver: Driver) -> list[RunningTrial]:
        return list(driver.trials.values())

    def _holdings(self, driver: Driver) -> tuple[Holding, ...]:
        """Return the rows of the trials that run, or that are about to."""
        places = Counter((trial.node, trial.device) for trial in driver.trials.values())
        leaving = Counter((trial.node, trial.device) for trial in driver.trials.values() if trial.leaving)
        places.update((grant.node, grant.device) for grant in driver.granted)
        places.update((trial.node, trial.device) for trial in driver.ended)
        sweep = driver.claim.sweep
        return tuple(Holding(sweep, *place, trials, leaving[place]) for place, trials in places.items())


def _after(rows: Snapshot, driver: Driver, decided: Turn) -> Snapshot:
    """Return rows with a driver's decision written."""
    sweep, gone = driver.claim.sweep, set(decided.expired)
    others = [row for row in rows.holdings if row.sweep not in {*gone, sweep}]
    own: Counter[tuple[str, int | None]] = Counter()
    for row in rows.holdings:
        if row.sweep == sweep:
            own[row.node, row.device] += row.trials
    own.update((grant.node, grant.device) for grant in decided.grants)
    leaving = Counter(
        (trial.node, trial.device) for trial in driver.trials.values() if trial.key in decided.leaving
    )
    owners = {owner.name: owner for owner in (*rows.owners, *decided.owners)}
    return replace(
        rows,
        owners=tuple(owners.values()),
        claims=tuple(row for row in rows.claims if row.sweep not in gone),
        states=tuple(
            decided.state if row.sweep == sweep else row for row in rows.states if row.sweep not in gone
        ),
        holdings=(*others, *(Holding(sweep, *place, trials, leaving[place]) for place, trials in own.items())),
    )


def _keep(driver: Driver, kept: tuple[Holding, ...]) -> None:
    """End the trials of a driver for which no row is left."""
    left = Counter({(row.node, row.device): row.trials for row in kept})
    driver.granted.clear()
    driver.ended.clear()
    for key, trial in list(driver.trials.items()):
        place = trial.node, trial.device
        if left[place]:
            left[place] -= 1
        else:
            del driver.trials[key]
