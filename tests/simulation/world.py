"""World of a simulated sweep: machines, a database, a store, MLflow, a cluster and faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import Busy, NoSpace, Refusal
from orchestrator.ledger.lease_backends import LIFE_SECONDS
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.queue.queue_settings import ask_to_stop
from orchestrator.ledger.queue.trial_requests import ask_about_trial
from orchestrator.ledger.queue.wanted_settings import ask_to_try
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import UNFINISHED_TRIAL, UserDecision, is_confirmation
from orchestrator.session.attempts import LEAVE_SECONDS
from orchestrator.session.session import Session
from orchestrator.storage.paths import Paths
from orchestrator.upkeep.orphans import collect, garbage_of
from orchestrator.upkeep.recovery import recover
from tests.simulation.cluster import Cluster, Node
from tests.simulation.database import Database
from tests.simulation.driver import Driver
from tests.simulation.faults import REQUEST, TRIAL_REQUEST, Fault
from tests.simulation.kernel import Kernel, Process
from tests.simulation.power import Disk
from tests.simulation.steps import RequestedDecision
from tests.simulation.store import URL, Store
from tests.simulation.strikes import Strikes
from tests.simulation.sweeps import LEDGER, Variant, write
from tests.simulation.system import Machine, SimulatedSystem
from tests.simulation.tracking import Mlflow
from tests.simulation.training import Work

STOP_SECONDS = 30.0
"""Longest time for which a driver may run after a stop request, besides the time that faults last.

An attempt whose answer is lost counts as one that does not answer the request: its driver waits for it.
"""

OFF_SECONDS = 1.0
"""Length of a power cut."""

DISTURBED_SECONDS = 60.0
"""Range of message delays."""


class World:
    """World of one simulated sweep.

    Args:
        kernel: Kernel of the simulation.
        sweep: Sweep that runs.
        variant: Variant of the sweep.
        ledger: Files of a ledger that knows the sweep, by their names.
        faults: Faults that are planned.
        folder: Folder for the files of every machine.

    Attributes:
        machines: Machines of the world.
        database: Database of the ledger.
        store: Store of the checkpoints.
        mlflow: The server.
        work: The training so far.
        cluster: Cluster that trains.
        strikes: The faults.
        drivers: Every driver so far.
        disk: What a loss of power leaves.
        on_loss: Function that is called when rows may have been lost, with a loss of power or by `recover`.
        was_off: Whether a machine has lost its power.
        requested: Learning rates of the requests to try a setting, each another one.
        acknowledged: Those whose requests were acknowledged.
        trial_requests: Requests about single trials, by trial: each has one at most.
    """

    def __init__(
        self,
        kernel: Kernel,
        sweep: SweepConfig,
        variant: Variant,
        ledger: Mapping[str, bytes],
        faults: Sequence[Fault],
        folder: Path,
    ) -> None:
        self._kernel, self._sweep, self._faults = kernel, sweep, faults
        self._reports = variant.reports
        names = ("m1", "m2", "m3") if variant.is_server else ("m1",)
        self.machines = [Machine(name, folder / name) for name in names]
        for machine in self.machines:
            (machine.root / "mlruns").mkdir(parents=True)
        root = self.machines[0].root / "mlruns"
        write(ledger, root)
        self.database = Database(kernel, root / LEDGER, None if variant.is_server else self.machines[0])
        self.store, self.mlflow, self.work = Store(kernel), Mlflow(kernel), Work()
        self.strikes = Strikes(kernel, faults, self._disturbances())
        nodes = [Node(machine, variant.concurrent) for machine in self.machines]
        self.cluster = Cluster(
            kernel, self.work, nodes, on_start=lambda actor: self.strikes.plan(actor.process, actor)
        )
        self.drivers: list[Driver] = []
        self.disk = Disk(folder, self.database.file, kernel.random)
        self.on_loss: Callable[[], None] = lambda: None
        self.was_off = self._recovers = False
        self.requested: list[float] = []
        self.acknowledged: set[float] = set()
        self.trial_requests: dict[str, RequestedDecision] = {}

    @property
    def machines_on(self) -> list[Machine]:
        """Return the machines that have power."""
        return [machine for machine in self.machines if not machine.is_off]

    def start_driver(self, *, by_person: bool = False) -> Process:
        """Start a driver on any machine that has power.

        Args:
            by_person: Whether it resumes a sweep that was stopped.
        """
        kernel = self._kernel
        process = kernel.process(f"driver-{len(self.drivers) + 1}")
        machine = kernel.random.choice(self.machines_on)
        machine.processes.append(process)
        self.strikes.plan(process)
        driver = Driver(
            kernel,
            process,
            self._sweep,
            self.database,
            self.cluster,
            machine,
            self.mlflow,
            unless_stopped=not by_person,
        )
        self.drivers.append(driver)
        kernel.start(process, driver.main)
        return process

    def session_of(self, _: str) -> Session:
        """Return the session of the driver that runs now."""
        running = self._kernel.task.process
        tune = next(driver.tune for driver in self.drivers if driver.process is running)
        assert tune is not None, "a stopping rule decides for Tune"
        return tune.session

    def ledger(self) -> Ledger:
        """Return the ledger as the running process opens it, on the first machine."""
        process = self._kernel.task.process
        return self.database.ledger(process, SimulatedSystem(self._kernel, self.machines[0], process))

    def paths(self) -> Paths:
        """Return the paths of the installation on the first machine; with a server there is a store, too."""
        return Paths(self.machines[0].root / "mlruns", store=URL if self.database.is_server else None)

    def collect(self, ledger: Ledger) -> None:
        """Collect the garbage of the sweep."""
        for garbage in garbage_of(ledger, self._sweep.id, self.paths()):
            self._kernel.trace(f"collects {garbage.path}")
            collect(garbage)

    def calm(self) -> None:
        """End every outage."""
        for what in (self.store, self.database, self.mlflow):
            what.down = False
        for machine in self.machines:
            machine.is_full = False

    # ---------------------------------------------------------------- faults

    def _disturbances(self) -> dict[str, Callable[[Fault], object]]:
        """Return what applies the faults that strike no single process, by their kinds."""
        return {
            "another driver": self._start_another,
            "clock steps": self._step_clocks,
            "store vanishes": partial(self._vanish, self.store),
            "database vanishes": partial(self._vanish, self.database),
            "MLflow vanishes": partial(self._vanish, self.mlflow),
            "disk full": self._fill_disk,
            "messages delayed": self._delay_messages,
            "messages repeated": self._repeat_messages,
            "stop request": self._ask_to_stop,
            REQUEST: self._ask_to_try,
            TRIAL_REQUEST: self._ask_about_trial,
            "gc": self._run_gc,
            "power loss": self._lose_power,
            "recover": lambda _: self._start_person("recoverer", self.recover),
        }

    def _start_another(self, _: Fault) -> None:
        if self.machines_on:
            self.start_driver()

    def _step_clocks(self, fault: Fault) -> None:
        for machine in self.machines:
            machine.skew += fault.seconds

    def _vanish(self, what: Store | Database | Mlflow, fault: Fault) -> None:
        what.down = True
        self._kernel.after(fault.seconds, partial(self._return, what))

    def _return(self, what: Store | Database | Mlflow) -> None:
        self._kernel.trace(f"the {type(what).__name__.lower()} is back")
        what.down = False

    def _fill_disk(self, fault: Fault) -> None:
        machine = self._kernel.random.choice(self.machines)
        self._kernel.trace(f"the disk of {machine.name} is full")
        machine.is_full = True
        self._kernel.after(fault.seconds, partial(self._empty_disk, machine))

    def _empty_disk(self, machine: Machine) -> None:
        self._kernel.trace(f"the disk of {machine.name} has room again")
        machine.is_full = False

    def _delay_messages(self, fault: Fault) -> None:
        self.cluster.latency = fault.seconds
        self._kernel.after(DISTURBED_SECONDS, self.cluster.recover)

    def _repeat_messages(self, _: Fault) -> None:
        self.cluster.repeats = True
        self._kernel.after(DISTURBED_SECONDS, self.cluster.recover)

    def _ask_to_stop(self, _: Fault) -> None:
        """Let a person ask for the end of the sweep; every driver of that moment must leave."""
        most = STOP_SECONDS + sum(fault.seconds for fault in self._faults if fault.seconds > 0)
        most += LEAVE_SECONDS * any(fault.kind == "lost answer" for fault in self._faults)

        def ask() -> None:
            try:
                ask_to_stop(self.ledger(), self._sweep.id)
            except Refusal as refusal:
                self._kernel.trace(f"refuses: {refusal}")
                return
            for driver in self.drivers:
                # A driver that waits for the lease of a lost machine reads the request afterwards.
                waits = 0.0 if driver.drives else LIFE_SECONDS
                self.strikes.expect_end(driver.process, "a stop request", most + waits)

        self._start_person("person", ask)

    def _ask_to_try(self, _: Fault) -> None:
        """Let a person ask the sweep to try a setting that no sampler proposes."""
        rate = 1e-3 * (len(self.requested) + 1)
        self.requested.append(rate)
        asked = Asked("person", "try", self._sweep.id)

        def ask() -> None:
            try:
                ask_to_try(self.ledger(), self._sweep.id, {"learning_rate": rate}, asked)
            except Refusal as refusal:
                self._kernel.trace(f"refuses: {refusal}")
                return
            self._kernel.trace(f"has requested {rate:g}")
            self.acknowledged.add(rate)

        self._start_person("person", ask)

    def _ask_about_trial(self, _: Fault) -> None:
        """Let a person stop an unfinished trial, or exempt one of the search, as far as the API allows it."""

        def ask() -> None:
            ledger, random = self.ledger(), self._kernel.random
            trials = [trial for trial in ledger.trials(self._sweep.id) if trial.state in UNFINISHED_TRIAL]
            keys = [trial.key for trial in trials if trial.key not in self.trial_requests]
            if not keys:
                return
            key = random.choice(keys)
            decision: UserDecision = "stop" if is_confirmation(key) or random.random() < 0.6 else "exempt"
            request = self.trial_requests[key] = RequestedDecision(decision)
            try:
                ask_about_trial(ledger, key, decision, Asked("person", decision, self._sweep.id))
            except Refusal as refusal:
                self._kernel.trace(f"refuses: {refusal}")
                return
            self._kernel.trace(f"has requested: {decision} {key}")
            request.is_acknowledged = True

        self._start_person("person", ask)

    def _run_gc(self, _: Fault) -> None:
        """Let a person run `gc`, which leaves a sweep alone that is being driven."""

        def run() -> None:
            ledger = self.ledger()
            try:
                with Lease(ledger, self._sweep.id):
                    self.collect(ledger)
            except Refusal as refusal:
                self._kernel.trace(f"refuses: {refusal}")

        self._start_person("collector", run)

    def _start_person(self, name: str, run: Callable[[], None]) -> None:
        """Start a command of a person on the first machine, unless that is off."""
        process = self._kernel.process(name)
        self.machines[0].processes.append(process)
        if not self.machines[0].is_off:
            self._kernel.start(process, run)

    def recover(self) -> None:
        """Let a person rebuild the ledger from its backup, which a running driver prevents."""
        if self.database.is_server or self._recovers:
            return
        self._recovers, process = True, self._kernel.task.process
        process.on_end.append(self._end_recovery)
        try:
            recover(str(self.database.url), SimulatedSystem(self._kernel, self.machines[0], process))
        except (Busy, NoSpace, OSError) as refusal:
            self._kernel.trace(f"refuses: {refusal}")
        else:
            self._kernel.trace("has rebuilt the ledger")
            self.database.reopen()
            self.on_loss()
        finally:
            self._recovers = False

    def _end_recovery(self) -> None:
        self._recovers = False

    def _lose_power(self, _: Fault) -> None:
        """Switch a machine off and, soon after, on."""
        machine = self._kernel.random.choice(self.machines_on)
        self._kernel.trace(f"{machine.name} loses its power")
        machine.is_off = self.was_off = True
        for actor in self.cluster.actors:
            if actor.node.machine is machine:
                self.strikes.excused.add(actor.attempt_id)
                actor.cause = "node lost"
        for process in machine.processes:
            self._kernel.kill(process)
        machine.processes.clear()
        self.strikes.count += self._reports - 1  # every report since the last flush is lost
        self._kernel.after(OFF_SECONDS, partial(self._switch_on, machine))

    def _switch_on(self, machine: Machine) -> None:
        self._kernel.trace(f"{machine.name} has power again")
        machine.is_off, machine.boots = False, machine.boots + 1
        owns_ledger = not self.database.is_server
        self.disk.fail(machine.root, keep_database=not owns_ledger)
        if owns_ledger:
            self.database.reopen()
            self.on_loss()
