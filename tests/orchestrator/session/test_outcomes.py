"""An outcome is judged before anybody else sees it."""

from __future__ import annotations

import math

import pytest

from orchestrator.assignment import Outcome
from orchestrator.session.outcomes import judged

METRIC = "val/accuracy"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_objective_that_is_no_number_is_a_failure(value: float) -> None:
    told = judged(Outcome(10, done=False, metrics={METRIC: value, "val/loss": 1.0}), METRIC)
    assert (told.done, told.failure, told.metrics) == (True, "non-finite", {})
    assert told.message == f"{METRIC} is {value}"


@pytest.mark.parametrize("metrics", [{METRIC: 0.5, "train/loss": math.inf}, {}])
def test_anything_else_stays_as_it_is(metrics: dict[str, float]) -> None:
    outcome = Outcome(10, done=False, metrics=metrics)
    assert judged(outcome, METRIC) == outcome
