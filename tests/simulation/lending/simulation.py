"""One simulated machine with warm workers: everything follows from a seed and a list of faults."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack

from tests.simulation.draws import drawing_from
from tests.simulation.faults import Fault
from tests.simulation.kernel import Kernel
from tests.simulation.lending.plan import Plan, drawn_faults, drawn_plan
from tests.simulation.lending.world import World
from tests.simulation.result import Line, Result, collecting_afterwards, error_of
from tests.simulation.violation import Violation, require

LIMIT_SECONDS = 600.0
"""Simulated time within which every sweep must be complete and every worker have ended."""


def simulate(seed: int, faults: Sequence[Fault] | None = None) -> Result[Plan]:
    """Run the drivers of a seed.

    Args:
        seed: Seed of the run.
        faults: None for those of the seed.
    """
    rng = random.Random(seed)
    plan = drawn_plan(rng)
    result = Result(seed, "lending", plan, drawn_faults(rng) if faults is None else faults)
    with collecting_afterwards(), drawing_from(f"{seed}"):
        try:
            _run(result)
        except Violation as violation:
            result.violation = violation
    return result


def _run(result: Result[Plan]) -> None:
    def note(at: float, actor: str, text: str) -> None:
        result.trace.append(Line(at, actor, text))

    kernel = Kernel(f"{result.seed}", note)
    world = World(kernel, result.variant, result.faults)
    with ExitStack() as stack:
        stack.enter_context(world.simulated())
        world.begin()
        kernel.run(LIMIT_SECONDS)
        unfinished = sorted(world.unfinished)
        if not kernel.errors and not unfinished:
            world.rules.check_end(world.ray.servers)
        world.is_closing = True
        kernel.close()
    for process, error in kernel.errors:
        if isinstance(error, Violation):
            raise error
        result.error = error_of(error)
        raise Violation("crash", f"{process.name} ended with {error!r}") from error
    require(not unfinished, "ends", f"{unfinished} have not ended")
