"""One simulated sweep: everything that happens in it follows from a seed and a list of faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

import filelock

from orchestrator.schedule import schedulers
from orchestrator.storage import store
from orchestrator.training import attempt
from orchestrator.training import process as stop_requests
from tests.simulation import faults as drawn_faults
from tests.simulation import invariants
from tests.simulation.draws import drawing_from
from tests.simulation.faults import Fault
from tests.simulation.files import PlainLock, Watch
from tests.simulation.invariants import Outcome
from tests.simulation.kernel import Kernel, Process
from tests.simulation.result import Result, collecting_afterwards, error_of, temporary_folder
from tests.simulation.sizes import SIZES
from tests.simulation.steps import (
    Charges,
    Dropped,
    Finished,
    Flushed,
    Holders,
    Interrupted,
    Requests,
    StopRequests,
    TrialRequests,
)
from tests.simulation.sweeps import Variant, config, template
from tests.simulation.training import evaluating
from tests.simulation.violation import Violation, require
from tests.simulation.world import World

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 120.0
"""Time between two drivers; it doubles after each one that has only waited for MLflow."""

LATE = frozenset({"clock steps", "pause", "messages delayed"})
"""Faults after which a driver measures another time than the one for which a worker held resources."""

LIMIT_SECONDS = 3600.0
"""Simulated time within which every sweep must complete."""


def simulate(seed: int, size: str = "short", faults: Sequence[Fault] | None = None) -> Result:
    """Run the sweep of a seed.

    Args:
        seed: Seed of the run.
        size: Size of the sweep, one of `SIZES`.
        faults: None for those of the seed.
    """
    rng = random.Random(seed)
    variant = rng.choice(SIZES[size].variants)
    if faults is None:
        faults = drawn_faults.drawn(rng, SIZES[size].severity, is_alone=variant.is_alone)
        faults += drawn_faults.requested(rng, variant.requests, variant.trial_requests)
    with collecting_afterwards():
        return _Simulation(Result(seed, size, variant, faults)).run()


@cache
def undisturbed(variant: Variant) -> Outcome:
    """Return what a sweep comes to without faults.

    Raises:
        Violation: An invariant does not hold without any fault.
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
        self._folder = Path()
        self._kernel = Kernel(f"{result.seed}", self._trace)
        self._world: World

    def _trace(self, at: float, actor: str, text: str) -> None:
        self._result.note(self._folder, at, actor, text)

    def run(self) -> Result:
        """Run the sweep and check every invariant."""
        with temporary_folder() as self._folder, drawing_from(f"{self._result.seed}"):
            try:
                self._run()
            except Violation as violation:
                self._result.violation = violation
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
            StopRequests(kernel, world.database, world.drivers),
            Interrupted(world.database),
            Requests(world.database, world.requested, world.acknowledged),
            TrialRequests(world.database, world.trial_requests),
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
        dropped = Dropped(world.database, kernel, world.cluster)
        world.mlflow.on_send = partial(self._try, flushed.deliver)
        world.cluster.on_outcome = partial(self._try, dropped.report)
        kernel.start(kernel.process("supervisor"), self._supervise)
        try:
            with ExitStack() as stack:
                stack.enter_context(Watch(kernel, world.machines, partial(self._try, flushed.delete)))
                stack.enter_context(world.store)
                stack.enter_context(evaluating(kernel, world.machines))
                if self._result.size == "long" and self._result.seed % 5 == 3:
                    stack.enter_context(patch.object(attempt, "SIGN_OF_LIFE", -1.0))  # after every round
                stack.enter_context(patch.object(schedulers, "session_of", world.session_of))
                stack.enter_context(patch.object(filelock, "FileLock", PlainLock))
                stack.enter_context(patch.object(store, "PROBE_BYTES", 1))  # a full disk refuses any file
                stack.enter_context(patch.object(stop_requests, "may_begin", world.cluster.may_begin))
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
                if not self._waiting_for_mlflow():
                    self._collect_garbage()
                    return
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)  # only MLflow is waited for
            kernel.sleep(pause)

    def _waiting_for_mlflow(self) -> int:
        """Return the number of events and reports that MLflow lacks."""
        database = self._world.database
        reports = "report JOIN mlflow_run ON run = trial_key WHERE at > position"
        return database.count("outbox WHERE NOT delivered") or database.count(reports)

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
            self._result.error = error_of(error)
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
        invariants.check_ending(self._sweep, self._result.variant, outcome, state and state.reason)
        invariants.check_values(self._sweep, outcome)
        invariants.check_evaluations(self._sweep, outcome)
        invariants.check_trial_requests(outcome, self._world.trial_requests)
        invariants.check_work(self._sweep, outcome, self._world.strikes.count)
        invariants.check_mlflow(self._sweep, outcome, list(self._world.mlflow.runs.values()))
        expected = undisturbed(self._result.variant) if self._result.faults else outcome
        invariants.check_decisions(self._sweep, self._result.variant, outcome, expected)
