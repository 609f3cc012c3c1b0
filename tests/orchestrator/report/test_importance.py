"""Importances rank hyperparameters, with an interval, and are omitted if they would be noise."""

from __future__ import annotations

import cProfile
import math
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
import pytest
from optuna.importance import PedAnovaImportanceEvaluator

from orchestrator.config.space import recorded_space
from orchestrator.ledger.sweeps.records import TrialRecord
from orchestrator.report.analysis import importances
from orchestrator.study.distributions import as_held, to_optuna
from tests import sweeps
from tests.orchestrator.study.sweeps import FURTHER

SPACE = {"a": {"uniform": [0.0, 1.0]}, "b": {"log_uniform": [1e-4, 1e-1]}}


def _trials(count: int) -> list[TrialRecord]:
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
    assert importances([sweeps.trial(n, "FAILED") for n in range(30)], SPACE, maximize=True) == []
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


def of_optuna(trials: Sequence[TrialRecord], search: Mapping[str, Any]) -> dict[str, float]:
    """Return the importances by Optuna's own evaluator."""
    space = recorded_space(search)
    study = optuna.create_study(direction="maximize")
    for each in trials:
        study.add_trial(
            optuna.trial.create_trial(
                value=each.value,
                params={name: as_held(space[name], value) for name, value in each.params.items()},
                distributions={name: to_optuna(space[name]) for name in each.params},
            )
        )
    target = min(0.5, max(0.1, 5 / len(trials)))
    found = PedAnovaImportanceEvaluator(target_quantile=target).evaluate(study)
    total = sum(found.values())
    return {name: share / total for name, share in found.items()}


@pytest.mark.parametrize("count", [40, 57, 200])
def test_the_shares_are_those_of_optunas_evaluator(count: int) -> None:
    """For every kind of distribution, equal values, and hyperparameters that some trials lack."""
    draw = random.Random(count)
    search = {name: distribution.document() for name, distribution in FURTHER.items()} | SPACE
    search["layers"] = {"log_int": [1, 40]}
    trials = []
    for number in range(count):
        params = {name: distribution.draw(draw) for name, distribution in FURTHER.items()}
        params |= {"a": draw.random(), "b": 10 ** draw.uniform(-4, -1), "layers": draw.randint(1, 40)}
        value = round((params["sizes"] == [64, 64]) + draw.gauss(0, 0.5), 1)
        kept = {name: setting for name, setting in params.items() if name == "a" or draw.random() < 0.8}
        trials.append(sweeps.trial(number, params=kept, value=value))
    found = {entry.name: entry.share for entry in importances(trials, search, maximize=True)}
    assert found == pytest.approx(of_optuna(trials, search), abs=1e-9)


def test_pruned_trials_count_by_the_step_that_they_reached() -> None:
    """`a` decides how far a trial gets; the values of the early ones, which are larger, do not mislead."""
    draw = random.Random(0)
    trials = []
    for number in range(60):
        params = {"a": draw.random(), "b": 10 ** draw.uniform(-4, -1)}
        step = 200 if params["a"] > 0.9 else 80 if params["a"] > 0.6 else 40
        state = "COMPLETE" if step == 200 else "PRUNED"
        trials.append(
            sweeps.trial(number, state, params=params, step=step, value=1 - step / 400 + draw.random() / 100)
        )
    first, second = importances(trials, SPACE, maximize=True)
    assert first.name == "a"
    assert first.low > second.high


def test_a_thousand_trials_take_little_more_than_a_few_evaluations_by_optuna() -> None:
    """In processor seconds: each of the 40 repetitions would be one such evaluation."""
    trials = _trials(1000)
    for _ in range(2):  # the first run imports what it needs
        began = time.process_time()
        of_optuna(trials, SPACE)
        one = time.process_time() - began
        importances(trials, SPACE, maximize=True)
        every = time.process_time() - began - one
    assert every < 10 * one


def test_repetitions_run_no_python_for_each_trial() -> None:
    """Counted in calls of functions, which no other load changes."""
    records = [sweeps.trial(number) for number in range(1000)]
    search = sweeps.sweep_record().document["search"]
    importances(records[:20], search, maximize=True)  # imports what it needs
    profile = cProfile.Profile()
    profile.runcall(importances, records, search, maximize=True)
    calls = sum(entry.callcount for entry in profile.getstats())
    assert calls < 100 * len(records)
