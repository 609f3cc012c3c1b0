"""Where a sweep stands, for whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SETTLED = ("COMPLETE", "PRUNED", "FAILED")


@dataclass(frozen=True)
class Progress:
    """What a person watching a sweep wants to know.

    Attributes:
        states: number of trials by state.
        wanted: number of trials of the budget.
        best_key: key of the best trial so far, or None.
        best_value: its best validation value.
        seconds_left: estimate until the end, or None while there is nothing to estimate from.
        waiting: why nothing runs now, or None.
    """

    states: Mapping[str, int]
    wanted: int
    best_key: str | None = None
    best_value: float | None = None
    seconds_left: float | None = None
    waiting: str | None = None

    @property
    def settled(self) -> int:
        """Return how many trials report nothing more."""
        return sum(self.states.get(name, 0) for name in SETTLED)


def seconds_left(settled: int, settled_before: int, wanted: int, elapsed: float) -> float | None:
    """Estimate the time until all trials are settled, from those that this run settled.

    Args:
        settled: trials settled now.
        settled_before: of them, settled when this run began.
        wanted: trials of the budget.
        elapsed: seconds that this run has lasted.
    """
    here = settled - settled_before
    return (wanted - settled) * elapsed / here if here > 0 else None
