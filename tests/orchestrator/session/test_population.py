"""Who goes on from whom, and with which hyperparameters."""

from __future__ import annotations

import random

import pytest

from orchestrator.config.space import Distribution
from orchestrator.session.population import Mutation, Population

RATE = Distribution("log_uniform", 1e-4, 1e-2)
SPACE = {
    "learning_rate": RATE,
    "dropout": Distribution("choice", choices=(0.0, 0.1, 0.2)),
    "weight_decay": Distribution("uniform", 0.0, 0.1, step=0.05),
    "gamma_init.min": Distribution("uniform", 0.1, 0.9),
}
PARAMS = {"learning_rate": 1e-3, "dropout": 0.1, "weight_decay": 0.05, "gamma_init.min": 0.5}


def scores(population: Population, step: int, values: list[float]) -> list[list[str]]:
    return [population.better(f"t{place}", step, value) for place, value in enumerate(values)]


def test_the_worst_quarter_goes_on_from_the_best_quarter() -> None:
    asked = scores(Population(10, 0.25, 1), 10, [0.9, 0.8, 0.7, 0.6, 0.85, 0.95, 0.5, 0.1])
    assert asked[-1] == ["t5", "t0"]
    assert asked[4] == []


def test_less_is_better_where_it_is_minimised() -> None:
    assert scores(Population(10, 0.5, -1), 10, [0.1, 0.9])[1] == ["t0"]


def test_only_equal_steps_are_compared_and_only_at_the_period() -> None:
    population = Population(10, 0.5, 1)
    assert population.better("a", 10, 0.9) == []
    assert population.better("b", 15, 0.1) == []
    assert population.better("b", 20, 0.1) == []
    assert population.better("b", 10, 0.1) == ["a"]


def test_nobody_goes_on_from_itself() -> None:
    population = Population(10, 0.25, 1)
    assert population.better("a", 10, 0.5) == []
    for place in range(20):
        assert f"t{place}" not in population.better(f"t{place}", 20, place / 20)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("resample", [0.0, 0.5, 1.0])
def test_what_changes_stays_in_the_space_and_the_rest_stays(seed: int, resample: float) -> None:
    mutation = Mutation(("learning_rate", "dropout", "weight_decay"), resample, (0.8, 1.2))
    changed = mutation.applied(PARAMS, SPACE, random.Random(seed))
    assert changed["gamma_init.min"] == 0.5
    assert all(SPACE[name].holds(value) for name, value in changed.items())


def test_a_step_multiplies_and_stops_at_the_ends() -> None:
    step = Mutation(("learning_rate",), 0.0, (0.8, 1.2))
    seen = {step.applied(PARAMS, SPACE, random.Random(seed))["learning_rate"] for seed in range(20)}
    assert sorted(seen) == pytest.approx([0.8e-3, 1.2e-3])
    top = {**PARAMS, "learning_rate": 1e-2}
    assert max(step.applied(top, SPACE, random.Random(seed))["learning_rate"] for seed in range(20)) == 1e-2
