"""Time spent is added up from the ledger."""

from __future__ import annotations

import pytest

from orchestrator.config.sections import BudgetSection
from orchestrator.ledger.records import AttemptRecord
from orchestrator.session.budget import Spent, overspent, spent

NOW = 20 * 3600.0


def attempt(start: float, end: float | None) -> AttemptRecord:
    return AttemptRecord(
        "s-0.1", "s-0", 1, "ENDED", None, None, start * 3600, None if end is None else end * 3600
    )


def test_overlapping_attempts_share_the_clock_but_not_the_device() -> None:
    total = spent([attempt(0, 2), attempt(1, 3)], now=NOW)
    assert (total.hours, total.attempt_hours) == (3.0, 4.0)


def test_a_night_between_two_runs_does_not_count() -> None:
    assert spent([attempt(0, 1), attempt(10, 12)], now=NOW).hours == 3.0


def test_an_attempt_inside_another_adds_nothing_to_the_clock() -> None:
    assert spent([attempt(0, 4), attempt(1, 2), attempt(3, 5)], now=NOW).hours == 5.0


def test_a_running_attempt_counts_until_now() -> None:
    assert spent([attempt(18, None)], now=NOW).attempt_hours == 2.0


@pytest.mark.parametrize(
    ("limits", "gpu", "over"),
    [
        ({}, 1.0, None),
        ({"hours": 3.5}, 1.0, None),
        ({"hours": 3.0}, 1.0, "the budget of 3 hours is spent"),
        ({"gpu_hours": 4.0}, 0.5, None),
        ({"gpu_hours": 4.0}, 1.0, "the budget of 4 GPU hours is spent"),
    ],
)
def test_a_budget_is_spent_in_hours_or_in_gpu_hours(
    limits: dict[str, float], gpu: float, over: str | None
) -> None:
    assert overspent(BudgetSection(trials=1, **limits), Spent(hours=3.0, attempt_hours=4.0), gpu) == over
