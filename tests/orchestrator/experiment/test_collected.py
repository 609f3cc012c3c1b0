"""Curves become one number per seed."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.experiment.collected import REDUCTIONS, SeedCurves
from orchestrator.experiment.file_format import CompareSection


def seed(*layers: list[float], best: int = 0) -> SeedCurves:
    values = np.array(layers)
    return SeedCurves(np.arange(values.shape[1]), values, best)


def test_every_reduction_can_be_named_in_a_file() -> None:
    for name in REDUCTIONS:
        assert CompareSection(of=name).of == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("value", [2.5]),
        ("mean", [3.0]),
        ("last", [3.5]),
        ("drift", [(0.5 / 1.5 + 0.5 / 4.5) / 2]),
        ("layers", [(1.5 / 2.5 + 1.5 / 3.5) / 2]),
    ],
)
def test_a_seed_with_two_layers(name: str, expected: list[float]) -> None:
    assert REDUCTIONS[name]([seed([1.0, 2.0], [4.0, 5.0])]) == pytest.approx(expected)


def test_the_value_is_that_of_the_best_step() -> None:
    assert REDUCTIONS["value"]([seed([1.0, 7.0, 3.0], best=1)]) == [7.0]


def test_the_spread_of_seeds_is_the_distance_from_their_median() -> None:
    seeds = [seed([2.0, 2.0]), seed([3.0, 3.0]), seed([6.0, 6.0])]
    assert REDUCTIONS["seeds"](seeds) == pytest.approx([1 / 3, 0.0, 1.0])
