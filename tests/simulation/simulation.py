"""One simulated sweep: everything that happens in it follows from a seed and a list of faults."""

from __future__ import annotations

import random
import shutil
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from orchestrator.ledger.ledger import Ledger
from orchestrator.storage.paths import Paths
from orchestrator.upkeep.orphans import collect, garbage_of
from tests.simulation import faults as drawn_faults
from tests.simulation import invariants
from tests.simulation.cluster import Actor, Cluster, Node
from tests.simulation.database import Database
from tests.simulation.driver import Driver
from tests.simulation.faults import Fault
from tests.simulation.files import Watch
from tests.simulation.invariants import Finished, Holders, Outcome, Violation
from tests.simulation.kernel import Kernel, Process
from tests.simulation.store import URL, Store
from tests.simulation.sweeps import VARIANTS, Variant, config, template
from tests.simulation.system import Machine, SimulatedSystem
from tests.simulation.tracking import Mlflow
from tests.simulation.training import Work

SHARED_MEMORY = Path("/dev/shm")
LEAVE_SECONDS = 10.0
LIMIT_SECONDS = 3600.0
"""Simulated time within which every sweep must complete."""


@dataclass(frozen=True)
class Line:
    """A line of a trace."""

    at: float
    actor: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:9.3f} s  {self.actor:<10} {self.text}"


@dataclass
class Result:
    """A run.

    Attributes:
        seed: of the run.
        variant: that ran.
        faults: that were planned.
        error: traceback of the exception that ended a process.
        trace: what happened.
        violation: of an invariant, or None.
        outcome: what the sweep has come to.
    """

    seed: int
    variant: Variant
    faults: Sequence[Fault]
    error: str = ""
    trace: list[Line] = field(default_factory=list)
    violation: Violation | None = None
    outcome: Outcome | None = None

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.variant}", *(f"fault: {fault}" for fault in self.faults)]
        lines += [f"{number:4d} {line}" for number, line in enumerate(self.trace, 1)]
        return "\n".join(
            [
                *lines,
                *self.error.splitlines(),
                f"violated: {self.violation}" if self.violation else "all invariants hold",
            ]
        )


def simulate(seed: int, faults: Sequence[Fault] | None = None) -> Result:
    """Run the sweep of a seed.

    Args:
        seed: of the run.
        faults: None for those of the seed.
    """
    rng = random.Random(seed)
    variant = rng.choice(VARIANTS)
    planned = drawn_faults.drawn(rng, is_long=variant.is_long) if faults is None else faults
    return _Simulation(seed, variant, planned).run()


@cache
def undisturbed(variant: Variant) -> Outcome:
    """Return what a sweep comes to without faults."""
    result = _Simulation(0, variant, ()).run()
    if result.violation is not None:
        raise AssertionError(f"without any fault:\n{result}")
    assert result.outcome is not None
    return result.outcome


class _Simulation:
    def __init__(self, seed: int, variant: Variant, faults: Sequence[Fault]) -> None:
        self._result = Result(seed, variant, faults)
        self._sweep = config(variant)
        self._kernel = Kernel(f"{seed}", self._trace)
        self._work = Work()
        self._struck = 0
        self._drivers = 0
        self._killed: set[str] = set()
        self._folder = Path()

    def _trace(self, at: float, actor: str, text: str) -> None:
        # The folder has another name in each run, and a trace is the same in all.
        self._result.trace.append(Line(at, actor, text.replace(f"{self._folder}/", "")))

    def run(self) -> Result:
        """Run the sweep and check every invariant."""
        folder = Path(
            tempfile.mkdtemp(prefix="sweep-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
        )
        self._folder = folder
        try:
            self._run_in(folder)
        except Violation as violation:
            self._result.violation = violation
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return self._result

    def _run_in(self, folder: Path) -> None:
        kernel = self._kernel
        names = ("m1", "m2", "m3") if self._result.variant.is_server else ("m1",)
        self._machines = [Machine(name, folder / name) for name in names]
        for machine in self._machines:
            (machine.root / "mlruns").mkdir(parents=True)
        self._database = self._new_database(folder / "m1" / "mlruns")
        nodes = [Node(machine, self._result.variant.concurrent) for machine in self._machines]
        self._store, self._mlflow = Store(kernel), Mlflow(kernel)
        self._cluster = Cluster(kernel, self._work, nodes, on_start=self._started)
        checks = (Finished(self._database), Holders(kernel, self._database))

        def check(process: Process, written: list[str]) -> None:
            for invariant in checks:
                invariant.check(process, written)

        self._database.on_commit = check
        supervisor = kernel.process("supervisor")
        kernel.start(supervisor, self._supervise)
        try:
            with Watch(kernel, str(folder)), self._store:
                kernel.run(LIMIT_SECONDS)
                kernel.close()
            self._check()
        finally:
            self._database.close()

    def _new_database(self, root: Path) -> Database:
        for name, content in template(self._result.variant).items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_bytes(content)
        return Database(self._kernel, root / "sweeps.db", is_server=self._result.variant.is_server)

    def _supervise(self) -> None:
        """Start a driver, and another one after each death, until one completes the sweep."""
        for fault in self._result.faults:
            if fault.actor == "world":
                self._kernel.after(fault.point, partial(self._strike_world, fault))
        while True:
            process = self._start_driver()
            while process.alive:
                self._kernel.sleep(5.0)
            if self._kernel.errors:
                return
            if process.code == 0 and not self._pending():
                self._collect_garbage()
                return

    def _collect_garbage(self) -> None:
        """Do what `gc` does, and check that exactly what the ledger refers to is left."""
        kernel, (machine, *_) = self._kernel, self._machines
        process = kernel.task.process
        ledger = self._database.ledger(process, SimulatedSystem(kernel, machine, process))
        self._calm()
        paths = Paths(machine.root / "mlruns", store=URL if self._result.variant.is_server else None)
        for garbage in garbage_of(ledger, self._sweep.id, paths):
            kernel.trace(f"collects {garbage.path}")
            collect(garbage)
        invariants.check_checkpoints(ledger, self._sweep.id, paths, self._store.objects)

    def _calm(self) -> None:
        """End every outage."""
        for what in (self._store, self._database, self._mlflow):
            what.down = False

    def _pending(self) -> int:
        """Return how many events wait for MLflow."""
        ((count,),) = self._database.rows("SELECT count(*) FROM outbox WHERE NOT delivered")
        return int(count)

    def _start_driver(self) -> Process:
        """Start a driver on any machine."""
        kernel, machine = self._kernel, self._kernel.random.choice(self._machines)
        self._drivers += 1
        process = kernel.process(f"driver-{self._drivers}")
        self._plan(process)
        store = URL if self._result.variant.is_server else None
        driver = Driver(
            kernel, process, self._sweep, self._database, self._cluster, machine, store, self._mlflow
        )
        kernel.start(process, driver.main)
        return process

    def _strike_world(self, fault: Fault) -> None:
        """Apply a fault of no single process."""
        self._struck += 1
        self._kernel.trace(f"FAULT {fault}")
        if fault.kind == "another driver":
            self._start_driver()
        elif fault.kind == "clock steps":
            for machine in self._machines:
                machine.skew += fault.seconds
        else:
            what = {"store": self._store, "database": self._database, "MLflow": self._mlflow}[
                fault.kind.split()[0]
            ]
            what.down = True
            self._kernel.after(fault.seconds, partial(self._return, what))

    def _return(self, what: Store | Database | Mlflow) -> None:
        """End an outage."""
        self._kernel.trace(f"the {type(what).__name__.lower()} is back")
        what.down = False

    def _started(self, actor: Actor) -> None:
        self._plan(actor.process, actor)

    def _plan(self, process: Process, actor: Actor | None = None) -> None:
        due = sorted(
            (fault for fault in self._result.faults if fault.actor == process.name),
            key=lambda fault: fault.point,
        )
        if not due:
            return

        def strike(process: Process) -> None:
            while due and process.points > due[0].point:
                self._strike(due.pop(0), process, actor)

        process.strike = strike

    def _strike(self, fault: Fault, process: Process, actor: Actor | None) -> None:
        self._kernel.trace(f"FAULT {fault}")
        self._struck += 1
        if actor is not None:
            self._killed.add(actor.attempt_id)
        if actor is not None and fault.kind == "doom":
            actor.worker.is_doomed = True
            return
        if fault.kind == "pause":
            self._kernel.pause(process, fault.seconds)
        elif fault.kind == "signal" and process.signals is not None:
            process.signals.append("SIGTERM")
            self._kernel.after(LEAVE_SECONDS, partial(self._expect_end, process, "a signal"))
        else:
            self._kernel.kill(process)

    def _expect_end(self, process: Process, why: str) -> None:
        """Record a violation if a process has not ended, unless it was paused meanwhile."""
        if process.alive and process.paused_at < self._kernel.now - LEAVE_SECONDS:
            text = f"{process.name} still runs {LEAVE_SECONDS:g} s after {why}"
            self._kernel.errors.append((process, Violation("leaves", text)))

    def _check(self) -> None:
        for process, error in self._kernel.errors:
            if isinstance(error, Violation):
                raise error
            self._result.error = "".join(traceback.format_exception(error))
            raise Violation("crash", f"{process.name} ended with {error!r}") from error
        ledger = Ledger.open(f"sqlite:///{self._database.file}")
        try:
            outcome = Outcome.of(ledger, self._sweep.id, self._work.steps)
            state = ledger.sweep(self._sweep.id)
        finally:
            ledger.close()
        self._result.outcome = outcome
        invariants.require(
            state is not None and state.state == "COMPLETE",
            "completes",
            f"{state and state.state} in the end",
        )
        invariants.check_completeness(self._sweep, outcome)
        invariants.check_values(self._sweep, outcome)
        invariants.check_work(self._sweep, outcome, self._struck)
        invariants.check_mlflow(self._sweep, outcome, list(self._mlflow.runs.values()))
        invariants.check_charges(outcome, self._killed)
        if not {"clock steps", "pause"} & {fault.kind for fault in self._result.faults}:
            invariants.check_budget(outcome, self._cluster)
        expected = undisturbed(self._result.variant) if self._result.faults else outcome
        invariants.check_decisions(self._sweep, self._result.variant, outcome, expected)


def shrunk(result: Result) -> Result:
    """Return a run of the same seed that violates the same invariant with as few faults as possible."""
    assert result.violation is not None, "only a failing run is made smaller"
    smallest = result
    for fault in result.faults:
        fewer = [kept for kept in smallest.faults if kept != fault]
        tried = simulate(result.seed, fewer)
        if tried.violation is not None and tried.violation.invariant == result.violation.invariant:
            smallest = tried
    return smallest
