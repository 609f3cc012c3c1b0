"""One simulated sweep: everything that happens in it follows from a seed and a list of faults."""

from __future__ import annotations

import gc
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

from orchestrator.schedule import schedulers
from tests.simulation import faults as drawn_faults
from tests.simulation import invariants
from tests.simulation.faults import Fault
from tests.simulation.files import Watch
from tests.simulation.invariants import Outcome
from tests.simulation.kernel import Kernel, Process
from tests.simulation.sizes import SIZES
from tests.simulation.steps import Charges, Finished, Flushed, Holders, StopRequests
from tests.simulation.sweeps import Variant, config, template
from tests.simulation.training import evaluating
from tests.simulation.violation import Violation, require
from tests.simulation.world import World

SHARED_MEMORY = Path("/dev/shm")
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 120.0
"""Time between two drivers; it doubles after each one that has only waited for MLflow."""

LATE = frozenset({"clock steps", "pause", "messages delayed"})
"""Faults after which a driver measures another time than the one for which a worker held resources."""

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
        size: of the sweep, by name.
        variant: that ran.
        faults: that were planned.
        error: traceback of the exception that ended a process.
        trace: what happened.
        violation: of an invariant, or None.
        outcome: what the sweep has come to.
    """

    seed: int
    size: str
    variant: Variant
    faults: Sequence[Fault]
    error: str = ""
    trace: list[Line] = field(default_factory=list)
    violation: Violation | None = None
    outcome: Outcome | None = None

    def __str__(self) -> str:
        lines = [f"{self.size} seed {self.seed}: {self.variant}"]
        lines += [f"fault: {fault}" for fault in self.faults]
        lines += [f"{number:4d} {line}" for number, line in enumerate(self.trace, 1)]
        return "\n".join(
            [
                *lines,
                *self.error.splitlines(),
                f"violated: {self.violation}" if self.violation else "all invariants hold",
            ]
        )


def simulate(seed: int, size: str = "short", faults: Sequence[Fault] | None = None) -> Result:
    """Run the sweep of a seed.

    Args:
        seed: of the run.
        size: of the sweep, one of `SIZES`.
        faults: None for those of the seed.
    """
    rng = random.Random(seed)
    variant = rng.choice(SIZES[size].variants)
    if faults is None:
        faults = drawn_faults.drawn(rng, SIZES[size].severity, is_alone=variant.is_alone)
    with _collecting_afterwards():
        return _Simulation(Result(seed, size, variant, faults)).run()


@contextmanager
def _collecting_afterwards() -> Iterator[None]:
    """Collect the garbage of a run after it, and only that: a killed process leaves its files open."""
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()


@cache
def undisturbed(variant: Variant) -> Outcome:
    """Return what a sweep comes to without faults.

    Raises:
        Violation: an invariant does not hold without any fault.
    """
    result = _Simulation(Result(0, "", variant, ())).run()
    if result.violation is not None:
        raise Violation(result.violation.invariant, f"without any fault: {result.violation}\n{result}")
    assert result.outcome is not None
    return result.outcome


class _Simulation:
    def __init__(self, result: Result) -> None:
        self._result = result
        self._sweep = config(result.variant)
        self._kernel = Kernel(f"{result.seed}", self._trace)
        self._folder = Path()
        self._world: World

    def _trace(self, at: float, actor: str, text: str) -> None:
        # The folder has another name in each run, and a trace is the same in all.
        self._result.trace.append(Line(at, actor, text.replace(f"{self._folder}/", "")))

    def run(self) -> Result:
        """Run the sweep and check every invariant."""
        self._folder = Path(
            tempfile.mkdtemp(prefix="sweep-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
        )
        try:
            self._run()
        except Violation as violation:
            self._result.violation = violation
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._result

    def _run(self) -> None:
        kernel, variant = self._kernel, self._result.variant
        world = self._world = World(
            kernel, self._sweep, variant, template(variant), self._result.faults, self._folder
        )
        kinds = {fault.kind for fault in self._result.faults}
        finished, flushed = Finished(world.database), Flushed(world.database)
        checks = (
            finished,
            flushed,
            Holders(kernel, world.database),
            StopRequests(kernel, world.database),
            Charges(kernel, world.database, world.cluster, world.strikes.excused, is_timed=not kinds & LATE),
        )

        def check(process: Process, written: list[str]) -> None:
            for invariant in checks:
                self._try(invariant.check, process, written)

        def lose() -> None:
            for invariant in checks:
                invariant.lose()

        def flush() -> None:
            finished.flush()
            flushed.flush()

        world.database.on_commit, world.disk.on_flush, world.on_loss = check, flush, lose
        world.mlflow.on_send = partial(self._try, flushed.deliver)
        kernel.start(kernel.process("supervisor"), self._supervise)
        try:
            with ExitStack() as stack:
                stack.enter_context(Watch(kernel, world.machines, partial(self._try, flushed.delete)))
                stack.enter_context(world.store)
                stack.enter_context(evaluating(kernel, world.machines))
                stack.enter_context(patch.object(schedulers, "session_of", world.session_of))
                can_fail = bool({"power loss", "recover"} & kinds)
                stack.enter_context(world.disk.watched(can_fail=can_fail))
                kernel.run(LIMIT_SECONDS)
                kernel.close()
            self._check()
        finally:
            world.database.close()

    def _try(self, check: Callable[..., None], *step: object) -> None:
        """End the run with what a check of a step finds; see `Kernel.fail`."""
        try:
            check(*step)
        except Violation as violation:
            self._kernel.fail(violation)

    def _supervise(self) -> None:
        """Start a driver, and another one after each end, until one completes the sweep.

        A batch system starts them; after a stop request, a person does.
        """
        kernel, world = self._kernel, self._world
        world.strikes.begin()
        pause, by_person = FIRST_PAUSE_SECONDS, False
        while True:
            while not world.machines_on:
                kernel.sleep(pause)
            process = world.start_driver(by_person=by_person)
            driver = world.drivers[-1]
            kernel.join(process)
            if kernel.errors:
                return
            if driver.is_damaged and world.was_off:
                world.recover()
            by_person = process.code == 0 and world.database.count("stop_request") > 0
            if process.code == 0 and not by_person:
                if not world.database.count("outbox WHERE NOT delivered"):
                    self._collect_garbage()
                    return
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)  # only MLflow is waited for
            kernel.sleep(pause)

    def _collect_garbage(self) -> None:
        """Run `gc` in the end, and check that exactly what the ledger refers to is left."""
        self._world.calm()
        ledger = self._world.ledger()
        self._world.collect(ledger)
        invariants.check_checkpoints(ledger, self._sweep.id, self._world.paths(), self._world.store.objects)

    def _check(self) -> None:
        for process, error in self._kernel.errors:
            if isinstance(error, Violation):
                raise error
            self._result.error = "".join(traceback.format_exception(error))
            raise Violation("crash", f"{process.name} ended with {error!r}") from error
        ledger = self._world.database.plain_ledger()
        try:
            outcome = Outcome.of(ledger, self._sweep.id, self._world.work.steps)
            state = ledger.sweep(self._sweep.id)
        finally:
            ledger.close()
        self._result.outcome = outcome
        require(
            state is not None and state.state == "COMPLETE",
            "completes",
            f"{state and state.state} in the end",
        )
        invariants.check_completeness(self._sweep, outcome)
        invariants.check_values(self._sweep, outcome)
        invariants.check_evaluations(self._sweep, outcome)
        invariants.check_work(self._sweep, outcome, self._world.strikes.count)
        invariants.check_mlflow(self._sweep, outcome, list(self._world.mlflow.runs.values()))
        expected = undisturbed(self._result.variant) if self._result.faults else outcome
        invariants.check_decisions(self._sweep, self._result.variant, outcome, expected)


def shrunk(result: Result) -> Result:
    """Return a run of the same seed that violates the same invariant with as few faults as possible."""
    assert result.violation is not None, "only a failing run is made smaller"
    smallest = result
    for fault in result.faults:
        fewer = [kept for kept in smallest.faults if kept != fault]
        tried = simulate(result.seed, result.size, fewer)
        if tried.violation is not None and tried.violation.invariant == result.violation.invariant:
            smallest = tried
    return smallest
