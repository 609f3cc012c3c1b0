"""Runs by their names: sweeps of three sizes, the service, and the lending of warm workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation import simulation
from tests.simulation.faults import Fault
from tests.simulation.lending import simulation as lending
from tests.simulation.result import Result
from tests.simulation.service import simulation as service
from tests.simulation.sizes import SIZES

SERVICE, LENDING = "service", "lending"

NAMES = (*SIZES, SERVICE, LENDING)


def simulate(seed: int, size: str, faults: Sequence[Fault] | None = None) -> Result[Any]:
    """Run a seed.

    Args:
        seed: Seed of the run.
        size: One of `NAMES`.
        faults: None for those of the seed.
    """
    if size == LENDING:
        return lending.simulate(seed, faults)
    return service.simulate(seed, faults) if size == SERVICE else simulation.simulate(seed, size, faults)


def shrunk(result: Result[Any]) -> Result[Any]:
    """Return a run of the same seed that violates the same invariant with as few faults as possible."""
    assert result.violation is not None, "only a failing run is made smaller"
    smallest = result
    for fault in result.faults:
        fewer = [kept for kept in smallest.faults if kept != fault]
        tried = simulate(result.seed, result.size, fewer)
        if tried.violation is not None and tried.violation.invariant == result.violation.invariant:
            smallest = tried
    return smallest
