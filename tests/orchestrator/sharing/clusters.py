"""A cluster of several nodes: drivers decide second by second, and Ray places attempts where it likes.

Trials that share a device are in an engine, which is on a node of its own and leaves once it is idle.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from orchestrator.sharing import shedding
from orchestrator.sharing.pool_rows import RULES, UNIT, Place, PoolClaim, PoolNode, Rules, Snapshot, Use
from orchestrator.sharing.shedding import SheddableTrial
from orchestrator.sharing.view import View, renewed

INTERVAL = 10.0
"""Seconds between two reports of a trial."""


@dataclass
class Attempt:
    """An attempt that was granted.

    Attributes:
        key: unique.
        avoided: nodes on which it must not start.
        since: when the sweep began to wait for a place for it.
        engine: number of the shared engine that it is in, or None.
        node: on which it runs, or None while it waits.
        trial: what its driver knows of it once it runs.
    """

    key: str
    avoided: frozenset[str]
    since: float
    engine: int | None = None
    node: str | None = None
    trial: SheddableTrial | None = None


@dataclass
class Engine:
    """A shared engine.

    Attributes:
        avoided: nodes on which it must not start.
        node: on which it has a device, or None while it waits for one.
    """

    avoided: frozenset[str]
    node: str | None = None


@dataclass
class Driver:
    """The process of one sweep.

    Attributes:
        claim: of the sweep.
        lasts: seconds that a trial runs, or None if none ever ends.
        attempts: that were granted and have not ended.
        closed: nodes that were held for others at the driver's last look.
        closing: of these, the nodes on which engines give up their devices.
        engines: by number.
        waited_since: since when it has waited for places of attempts that it has taken back.
    """

    claim: PoolClaim
    lasts: float | None
    attempts: list[Attempt] = field(default_factory=list)
    closed: frozenset[str] = frozenset()
    closing: frozenset[str] = frozenset()
    waited_since: float | None = None
    engines: dict[int, Engine] = field(default_factory=dict)

    @property
    def running(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.node is not None]

    @property
    def pending(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.node is None]

    def inside(self, engine: int) -> int:
        """Return how many attempts are in an engine."""
        return sum(attempt.engine == engine for attempt in self.attempts)

    def seat(self, number: int) -> int | None:
        """Return the engine of the next attempt: one with a free slot that does not leave, or a new one."""
        if self.claim.slots < 2:
            return None
        for engine, known in self.engines.items():
            if known.node not in self.closing and self.inside(engine) < self.claim.slots:
                return engine
        self.engines[number] = Engine(self.closed)
        return number


class Cluster:
    """Nodes, drivers, their rows and one clock.

    Args:
        cores: of each node.
        devices: of each node; none if it is left out.
        rules: of the pool.
        seed: for the order in which drivers decide and for the nodes that Ray chooses.
    """

    def __init__(
        self, cores: list[int], rules: Rules = RULES, seed: int = 0, devices: list[int] | None = None
    ) -> None:
        each = zip(cores, devices or [0] * len(cores), strict=True)
        self.nodes = tuple(
            PoolNode(f"n{number}", count * UNIT, gpus) for number, (count, gpus) in enumerate(each)
        )
        self.rows = Snapshot(self.nodes)
        self.rules, self.now = rules, 1_000_000.0
        self.drivers: dict[str, Driver] = {}
        self.moved: list[float] = []
        self._chance, self._launched = random.Random(seed), 0

    def join(self, claim: PoolClaim, lasts: float | None = None) -> Driver:
        """Start the driver of a sweep."""
        self.drivers[claim.sweep] = Driver(claim, lasts)
        return self.drivers[claim.sweep]

    def put(self, sweep: str, node: str, count: int = 1, age: float = 0.0) -> None:
        """Let trials of a sweep run on a node."""
        for _ in range(count):
            driver = self.drivers[sweep]
            attempt = self._attempt(driver)
            if attempt.engine is not None:
                driver.engines[attempt.engine].node = node
            self._begin(attempt, node, self.now - age)

    def view(self) -> View:
        """Return what a driver would see now."""
        return View.of(self.rows, self.now, self.rules)

    def free(self, node: str) -> int:
        """Return the cores (1/10,000) of a node that no attempt uses."""
        total = next(one.cpu for one in self.nodes if one.name == node)
        return total - sum(
            driver.claim.cpu for driver in self.drivers.values() for one in driver.running if one.node == node
        )

    def free_devices(self, node: str) -> int:
        """Return the devices of a node that no attempt and no engine has."""
        total = next(one.devices for one in self.nodes if one.name == node)
        drivers = self.drivers.values()
        engines = sum(engine.node == node for driver in drivers for engine in driver.engines.values())
        return (
            total
            - engines
            - sum(one.node == node for driver in drivers if driver.claim.slots == 1 for one in driver.running)
        )

    def run(self, seconds: float) -> None:
        """Let time pass: every second Ray places attempts, and all drivers decide, in a random order."""
        for _ in range(round(seconds)):
            self.step()

    def step(self) -> None:
        """Let a second pass."""
        self.now += 1.0
        self._place()
        order = list(self.drivers.values())
        self._chance.shuffle(order)
        for driver in order:
            self._turn(driver)

    def _place(self) -> None:
        for driver in self.drivers.values():
            for engine in driver.engines.values():
                free = [
                    one.name
                    for one in self.nodes
                    if one.name not in engine.avoided and self.free_devices(one.name)
                ]
                if engine.node is None and free:
                    engine.node = self._chance.choice(free)
        pending = [(one, driver) for driver in self.drivers.values() for one in driver.pending]
        self._chance.shuffle(pending)
        for attempt, driver in pending:
            if attempt.engine is not None and driver.engines[attempt.engine].node is None:
                continue
            devices, cpu = driver.claim.on_node
            roomy = [
                node.name
                for node in self.nodes
                if node.name not in attempt.avoided
                and self.free(node.name) >= cpu
                and self.free_devices(node.name) >= devices
            ]
            if roomy:
                self._begin(attempt, self._chance.choice(roomy), self.now)
                driver.waited_since = None

    def _begin(self, attempt: Attempt, node: str, at: float) -> None:
        engine = None if attempt.engine is None else str(attempt.engine)
        attempt.node, attempt.trial = node, SheddableTrial(attempt.key, engine, at, at)

    def _turn(self, driver: Driver) -> None:
        self._report(driver)
        if len(self.rows.claims) > 1:
            driver.engines = {name: one for name, one in driver.engines.items() if driver.inside(name)}
        view = self._renew(driver)
        self._take_back(driver, view)
        self._choose(driver, view)
        while (view := self._renew(driver)).may_start(driver.claim.sweep):
            self._heed(driver, view)
            self._attempt(driver)

    def _heed(self, driver: Driver, view: View) -> None:
        sweep = driver.claim.sweep
        driver.closed = view.holding.closed_to(sweep)
        moves = view.holding.moves.get(sweep, {})
        driver.closing = frozenset(node for node, move in moves.items() if move.devices)

    def _attempt(self, driver: Driver) -> Attempt:
        self._launched += 1
        since = self.now if driver.waited_since is None else driver.waited_since
        key, engine = f"{driver.claim.sweep}-{self._launched}", driver.seat(self._launched)
        driver.attempts.append(Attempt(key, driver.closed, since, engine))
        return driver.attempts[-1]

    def _report(self, driver: Driver) -> None:
        for attempt in driver.running:
            trial = attempt.trial
            assert trial is not None
            if driver.lasts is not None and self.now - trial.started >= driver.lasts:
                driver.attempts.remove(attempt)
                if attempt.avoided == driver.closed and self._renew(driver).may_start(driver.claim.sweep):
                    # As Tune does, the next trial gets the worker of this one, and its place.
                    self._begin(self._attempt(driver), str(attempt.node), self.now)
            elif self.now - trial.reported >= INTERVAL:
                attempt.trial = replace(trial, reported=self.now)
                if trial.leaving:
                    self.moved.append(self.now - trial.started)
                    driver.attempts.remove(attempt)

    def _take_back(self, driver: Driver, view: View) -> None:
        self._heed(driver, view)
        for attempt in driver.pending:
            if attempt.avoided != driver.closed:
                driver.waited_since = min(driver.waited_since or attempt.since, attempt.since)
                driver.attempts.remove(attempt)

    def _choose(self, driver: Driver, view: View) -> None:
        trials = [attempt.trial for attempt in driver.running if attempt.trial is not None]
        sweep, seconds = driver.claim.sweep, shedding.minimum_run(driver.claim, 0.0, self.rules)
        nodes = {attempt.key: (str(attempt.node),) for attempt in driver.running}
        engines = {str(name): engine.node for name, engine in driver.engines.items() if engine.node}
        moves = view.holding.moves.get(sweep, {})
        leaving = shedding.moved(trials, nodes, engines, moves, self.now, seconds)
        if (demand := shedding.demands(view).get(sweep)) is not None:
            marked = [replace(one, leaving=one.leaving or one.key in leaving) for one in trials]
            leaving |= shedding.chosen(marked, demand, self.now, seconds)
        for attempt in driver.running:
            assert attempt.trial is not None
            attempt.trial = replace(attempt.trial, leaving=attempt.key in leaving)

    def _renew(self, driver: Driver) -> View:
        sweep, rows = driver.claim.sweep, self.rows
        before = next((use for use in rows.uses if use.sweep == sweep), Use(sweep, self.now))
        waits = [attempt.since for attempt in driver.pending]
        use = replace(
            before,
            renewed_at=self.now,
            trials=len(driver.attempts),
            pending=len(waits),
            devices=self._devices(driver),
            leaving=sum(one.trial is not None and one.trial.leaving for one in driver.attempts),
            pending_since=min(waits, default=None),
            places=self._places(driver),
        )
        others = replace(
            rows,
            claims=tuple(claim for claim in rows.claims if claim.sweep != sweep),
            uses=tuple(one for one in rows.uses if one.sweep != sweep),
        )
        written = replace(others, claims=(*others.claims, driver.claim), uses=(*others.uses, use))
        use = renewed(View.of(written, self.now, self.rules), use)
        self.rows = replace(written, uses=(*others.uses, use))
        return self.view()

    def _devices(self, driver: Driver) -> int:
        slots, trials = driver.claim.slots, len(driver.attempts)
        in_use = sum(bool(driver.inside(engine)) for engine in driver.engines)
        return max(in_use, -(-trials // slots)) if slots else 0

    def _places(self, driver: Driver) -> tuple[Place, ...]:
        seconds = shedding.minimum_run(driver.claim, 0.0, self.rules)
        trials: Counter[str] = Counter()
        ready: Counter[str] = Counter()
        for attempt in driver.running:
            assert attempt.trial is not None
            trials[str(attempt.node)] += 1
            ready[str(attempt.node)] += self.now - attempt.trial.started >= seconds
        devices = Counter(one.node for one in driver.engines.values() if one.node)
        if driver.claim.slots == 1:
            devices = trials
        names = sorted(trials.keys() | devices.keys())
        return tuple(Place(node, trials[node], devices[node], ready[node]) for node in names)
