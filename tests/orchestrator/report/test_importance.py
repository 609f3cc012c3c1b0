"""Importances rank hyperparameters, with an interval, and are omitted if they would be noise."""

from __future__ import annotations

import cProfile
import math
import random

from orchestrator.report.analysis import importances
from tests import sweeps
from tests.orchestrator.study.sweeps import FURTHER

SPACE = {"a": {"uniform": [0.0, 1.0]}, "b": {"log_uniform": [1e-4, 1e-1]}}


def _trials(count: int) -> list[object]:
    draw = random.Random(0)
    trials = []
    for number in range(count):
        params = {"a": draw.uniform(0, 1), "b": 10 ** draw.uniform(-4, -1)}
        value = 1 - (params["a"] - 0.3) ** 2 + draw.gauss(0, 0.01)
        trials.append(sweeps.trial(number, params=params, value=value))
    return trials


def test_the_hyperparameter_that_matters_comes_first() -> None:
    first, second = importances(_trials(60), SPACE, maximize=True)
    assert (first.name, second.name) == ("a", "b")
    assert first.share > 0.8
    assert first.low <= first.share <= first.high
    assert first.low > second.high
    assert first.share + second.share == 1.0


def test_fewer_trials_give_a_wider_interval() -> None:
    widths = [
        max(entry.high - entry.low for entry in importances(_trials(count), SPACE, maximize=True))
        for count in (12, 120)
    ]
    assert widths[0] > widths[1]


def test_no_numbers_from_noise() -> None:
    assert importances(_trials(9), SPACE, maximize=True) == []
    assert importances([sweeps.trial(n, "PRUNED") for n in range(30)], SPACE, maximize=True) == []
    same = [sweeps.trial(n, value=0.5, params={"a": 0.1, "b": 0.01}) for n in range(30)]
    assert importances(same, SPACE, maximize=True) == []


def test_the_upper_end_of_a_range_with_a_step_counts() -> None:
    """Its decimals are no multiple of those of the step, and Optuna would refuse it."""
    trials = [
        sweeps.trial(n, params={"a": n % 5 * math.pi / 4, "b": 10 ** -(1 + n % 3)}, value=0.1 * (n % 5))
        for n in range(30)
    ]
    first, _ = importances(
        trials, {**SPACE, "a": {"uniform": [0, math.pi], "step": math.pi / 4}}, maximize=True
    )
    assert first.name == "a"


def test_every_distribution_has_an_importance() -> None:
    """Lists, null and labels are values of a choice, and a normal distribution is compared by quantiles."""
    draw = random.Random(0)
    search = {name: distribution.document() for name, distribution in FURTHER.items()}
    trials = []
    for number in range(200):
        params = {name: distribution.draw(draw) for name, distribution in FURTHER.items()}
        value = (params["sizes"] == [64, 64]) + draw.gauss(0, 0.01)
        trials.append(sweeps.trial(number, params=params, value=value))
    every = importances(trials, search, maximize=True)
    assert {entry.name for entry in every} == FURTHER.keys()
    assert every[0].name == "sizes"


def test_resampling_does_not_copy_every_value_of_every_trial() -> None:
    """Of many trials that is most of the work: counted in calls of functions, which no other load changes."""
    records = [sweeps.trial(number) for number in range(100)]
    search = sweeps.sweep_record().document["search"]
    importances(records[:20], search, maximize=True)  # imports what it needs
    profile = cProfile.Profile()
    profile.runcall(importances, records, search, maximize=True)
    calls = sum(entry.callcount for entry in profile.getstats())
    assert calls < 250 * 41 * len(records)
