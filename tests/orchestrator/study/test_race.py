"""A race chooses better than the search did, and names a winner only where there is one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy

from orchestrator.study.race import SURE, chance_of_leader, next_candidate

RACES = 4000


def _has_winner(values: Sequence[Sequence[float]], runs: int) -> bool:
    return chance_of_leader(values, runs) >= SURE


def race(
    means: Sequence[float], deviation: float, rng: np.random.Generator, *, runs: int = 6
) -> list[list[float]]:
    """Return the values of the retrainings of a race between candidates with these true means."""
    values: list[list[float]] = [[] for _ in means]
    while (index := next_candidate(values, runs)) is not None:
        values[index].append(float(rng.normal(means[index], deviation)))
    return values


def test_every_candidate_runs_once_then_leader_and_challenger_take_turns() -> None:
    assert next_candidate([[], [], []], 6) == 0
    assert next_candidate([[None], [], []], 6) == 1
    assert next_candidate([[0.5], [None], [0.2]], 6) == 0
    assert next_candidate([[0.5], [0.4], [0.2]], 6) == 0
    assert next_candidate([[0.5, 0.3], [0.4], [0.2]], 6) == 1
    assert next_candidate([[0.5, 0.3], [0.4, 0.38], [0.2]], 5) is None


def test_a_candidate_alone_gets_every_retraining() -> None:
    assert next_candidate([[0.5, 0.6]], 3) == 0
    assert next_candidate([[0.5, 0.6, 0.7]], 3) is None


def test_a_clear_leader_ends_the_race_early() -> None:
    values = [[0.9, 0.9001], [0.2, 0.2001], [0.1]]
    assert chance_of_leader(values, 6) >= SURE
    assert next_candidate(values, 6) is None


def test_failed_retrainings_lose_and_unknown_noise_decides_nothing() -> None:
    assert chance_of_leader([[0.9], [0.1]], 6) == 0.0, "one value each says nothing of the noise"
    assert chance_of_leader([[-math.inf], [-math.inf]], 6) == 0.0
    assert next_candidate([[-math.inf], [0.5], [0.4]], 6) == 1
    assert chance_of_leader([[0.9, -math.inf], [0.5, 0.501]], 6) == 0.0, "one failure shows little"


@pytest.mark.slow
@pytest.mark.parametrize(("top", "runs"), [(2, 4), (2, 12), (3, 6), (5, 13)])
def test_equal_candidates_seldom_have_a_winner(top: int, runs: int) -> None:
    """As in a sweep in which only the seed varies."""
    rng = np.random.default_rng(top * runs)
    named = sum(_has_winner(race([0.0] * top, 1.0, rng, runs=runs), runs) for _ in range(RACES))
    assert named <= 0.05 * RACES


@pytest.mark.slow
def test_a_rule_that_forgets_the_selection_names_too_many() -> None:
    """Control: the test above notices a one-sided test of the leader after each retraining."""
    rng, named = np.random.default_rng(0), 0
    for _ in range(RACES // 4):
        values = rng.normal(size=(2, 6))
        p_values = [
            scipy.stats.ttest_ind(*sorted(values[:, :count], key=np.mean), alternative="less").pvalue
            for count in range(2, 7)
        ]
        named += min(p_values) <= 1 - SURE
    assert named > 0.1 * RACES / 4


def test_a_much_better_candidate_is_established() -> None:
    rng = np.random.default_rng(1)
    named = sum(_has_winner(race([0.0, 8.0], 1.0, rng, runs=12), 12) for _ in range(500))
    assert named > 400
