"""What a sweep has spent of its budget, from the attempts that the ledger remembers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.config.sections import BudgetSection
from orchestrator.ledger.records import AttemptRecord

_HOUR = 3600.0


@dataclass(frozen=True)
class Spent:
    """Time that attempts have taken.

    Attributes:
        hours: wall-clock hours in which at least one attempt ran; nights between two runs do not count.
        attempt_hours: hours of all attempts, summed; times the GPU share of one they are GPU hours.
    """

    hours: float
    attempt_hours: float


def spent(attempts: Iterable[AttemptRecord], now: float) -> Spent:
    """Add up attempts; one without an end is running, and counts until `now` (seconds since the epoch)."""
    # A clock may have been set back while an attempt ran.
    spans = sorted((each.started_at, max(each.ended_at or now, each.started_at)) for each in attempts)
    busy, reached = 0.0, float("-inf")
    for start, end in spans:
        busy += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return Spent(busy / _HOUR, sum(end - start for start, end in spans) / _HOUR)


def overspent(budget: BudgetSection, total: Spent, gpu: float) -> str | None:
    """Return which part of a budget is spent, for people; None if all of it has something left.

    Args:
        budget: of the sweep.
        total: what its attempts have taken.
        gpu: share of a GPU that an attempt has.
    """
    if budget.hours is not None and total.hours >= budget.hours:
        return f"the budget of {budget.hours:g} hours is spent"
    if budget.gpu_hours is not None and gpu * total.attempt_hours >= budget.gpu_hours:
        return f"the budget of {budget.gpu_hours:g} GPU hours is spent"
    return None
