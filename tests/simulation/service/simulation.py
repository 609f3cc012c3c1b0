"""One simulated service: everything that happens to its sweeps follows from a seed and a list of faults."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.simulation.draws import drawing_from
from tests.simulation.faults import Fault
from tests.simulation.files import Watch
from tests.simulation.kernel import Kernel, Process
from tests.simulation.result import Result, collecting_afterwards, error_of, temporary_folder
from tests.simulation.service.plan import Plan, drawn_faults, drawn_plan
from tests.simulation.service.world import World
from tests.simulation.violation import Violation, require

LIMIT_SECONDS = 3000.0
"""Simulated time within which every submission must end: less than the step of a clock."""


def simulate(seed: int, faults: Sequence[Fault] | None = None) -> Result[Plan]:
    """Run the service of a seed.

    Args:
        seed: Seed of the run.
        faults: None for those of the seed.
    """
    rng = random.Random(seed)
    plan = drawn_plan(rng)
    result = Result(seed, "service", plan, drawn_faults(rng) if faults is None else faults)
    with collecting_afterwards(), temporary_folder() as folder, drawing_from(f"{seed}"):
        try:
            _run(result, folder)
        except Violation as violation:
            result.violation = violation
    return result


def _run(result: Result[Plan], folder: Path) -> None:
    kernel = Kernel(f"{result.seed}", partial(result.note, folder))
    world = World(kernel, result.variant, result.faults, folder)
    plan = result.variant

    def check(process: Process, written: list[str]) -> None:
        driver = next((driver for driver in world.drivers if driver.process is process), None)
        try:
            world.rules.check(process, written, driver)
        except Violation as violation:
            kernel.fail(violation)

    def people() -> None:
        world.strikes.begin()
        tasks = [kernel.process(f"owner-of-{job.sweep_id}") for job in plan.jobs]
        for process, job in zip(tasks, plan.jobs, strict=True):
            kernel.start(process, partial(world.look_after, job))
        for process in tasks:
            kernel.join(process)
        world.end()

    world.database.on_commit = check
    kernel.start(kernel.process("systemd"), world.supervise)
    kernel.start(kernel.process("people"), people)
    try:
        with ExitStack() as stack:
            stack.enter_context(Watch(kernel, world.machines, lambda path: None))
            stack.enter_context(world.simulated())
            can_fail = any(fault.kind == "power loss" for fault in result.faults)
            stack.enter_context(world.disk.watched(can_fail=can_fail))
            kernel.run(LIMIT_SECONDS)
            kernel.close()
        for process, error in kernel.errors:
            if isinstance(error, Violation):
                raise error
            result.error = error_of(error)
            raise Violation("crash", f"{process.name} ended with {error!r}") from error
        require(world.is_over, "ends", f"{world.unfinished()} have not ended")
        world.rules.check_end(plan.jobs)
    finally:
        world.database.close()
