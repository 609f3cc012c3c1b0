"""Verdicts err as seldom as docs/experiments.md promises, whatever the distribution of the seeds.

Each outcome is simulated 2,000 times where it is hardest: with the true median at the limit itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom

from orchestrator.experiment.order import ordering
from orchestrator.experiment.verdict import EXAMPLES_LEVEL, StatedFigure, answered, judged
from orchestrator.report.noise import Sample, half_width, mean_of
from orchestrator.report.statistics import CONFIDENCE, median_interval, share_interval

RUNS = 2000
LEVEL = 1 - CONFIDENCE
MARGIN = 3 * np.sqrt(LEVEL * CONFIDENCE / RUNS)
"""Three standard errors of a share of 5 % of `RUNS`."""

MEDIAN = 0.6
"""True median of every distribution."""

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def unimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return MEDIAN + 0.02 * rng.normal(size=shape)


def bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Half of the seeds solve the task, nearly alike, and half stay at chance."""
    solved = rng.random(shape) < 0.5
    return np.where(solved, MEDIAN + 0.38 * rng.random(shape), MEDIAN - 0.5 + 0.01 * rng.random(shape))


def equal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Half of the seeds have one value, and half another: five of them are often equal."""
    return np.where(rng.random(shape) < 0.5, MEDIAN + 0.4, MEDIAN - 0.4)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return MEDIAN + 0.05 * (1 - np.exp(rng.normal(size=shape)))


KINDS = pytest.mark.parametrize("draw", [unimodal, bimodal, equal, skewed])


@KINDS
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_bounds_are_seldom_confirmed_by_chance(draw: Draw, seeds: int) -> None:
    """Nor refuted: half of all trainings are on either side of the bound."""
    bound = StatedFigure(at_least=MEDIAN)
    drawn = draw(np.random.default_rng(0), (RUNS, seeds)) - 1e-9
    found = [answered(values, bound, seeds=seeds, size="").outcome for values in drawn]
    assert found.count("confirmed") / RUNS <= LEVEL + MARGIN
    assert found.count("refuted") / RUNS <= LEVEL + MARGIN


@KINDS
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_figures_are_seldom_reproduced_by_chance(draw: Draw, seeds: int) -> None:
    """The true median lies at the end of the tolerance."""
    figure = StatedFigure(value=MEDIAN + 0.45, tolerance=0.45)
    drawn = draw(np.random.default_rng(1), (RUNS, seeds)) - 1e-9
    found = [judged(values, figure, seeds=seeds, obstacle="").outcome for values in drawn]
    assert found.count("reproduced") / RUNS <= LEVEL + MARGIN


@pytest.mark.parametrize("draw", [unimodal, skewed, bimodal])
@pytest.mark.parametrize("examples", [100, 1000])
def test_the_luck_of_test_examples_seldom_confirms(draw: Draw, examples: int) -> None:
    """All seeds are tested on the same examples, of which some are harder than others."""
    rng, bound, confirmed = np.random.default_rng(2), StatedFigure(at_least=MEDIAN), 0
    for true in draw(rng, (RUNS // 4, 5)):
        # A uniform threshold an example: an example is right if its threshold lies below the seed's accuracy.
        scores = (rng.random(examples) < np.clip(true, 0, 1)[:, None]).astype(float)
        noise = mean_of(Sample("a", scores.mean(axis=1), scores, "", share=True)).examples
        assert noise is not None
        width = half_width([noise], EXAMPLES_LEVEL)
        verdict = answered(list(scores.mean(axis=1)), bound, seeds=5, size="", noise=width)
        confirmed += verdict.outcome == "confirmed"
    assert confirmed / (RUNS // 4) <= LEVEL + 2 * MARGIN


@KINDS
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_equal_arms_are_seldom_better(draw: Draw, seeds: int) -> None:
    """Both arms have one distribution."""
    drawn = draw(np.random.default_rng(3), (RUNS, 2, seeds))
    pairs = (
        [Sample(name, each, None, "", share=True) for name, each in zip("ab", pair, strict=True)]
        for pair in drawn
    )
    better = sum(ordering(*pair, maximize=True).winner is not None for pair in pairs)
    assert better / RUNS <= LEVEL + MARGIN


def test_means_of_seeds_would_confirm_too_often() -> None:
    """The simulation can fail: three near-equal seeds of a bimodal distribution have a narrow interval."""
    rng, wrong = np.random.default_rng(4), 0
    for values in np.where(rng.random((RUNS, 3)) < 0.7, 0.99 + 0.005 * rng.random((RUNS, 3)), 0.1):
        half = 4.303 * np.std(values, ddof=1) / np.sqrt(3)
        wrong += values.mean() - half > 0.9
    assert wrong / RUNS > 0.25


@pytest.mark.parametrize("draw", [unimodal, bimodal, skewed])
@pytest.mark.parametrize("seeds", [3, 5, 6, 7, 9, 10, 12])
def test_intervals_of_the_median_have_their_confidence(draw: Draw, seeds: int) -> None:
    """From six seeds on it is 95 to 99 %; the range of five has 93.75 %, and of three 75 %."""
    held, confidence = 0, 0.0
    for values in draw(np.random.default_rng(5), (RUNS, seeds)):
        low, high, confidence = median_interval(values)
        held += low <= MEDIAN <= high
    assert held / RUNS == pytest.approx(confidence, abs=3 * np.sqrt(confidence * (1 - confidence) / RUNS))
    assert {3: confidence == 0.75, 5: confidence == 0.9375}.get(seeds, 0.95 <= confidence < 0.99)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_intervals_of_shares_are_exact(seeds: int) -> None:
    """They hold every true share with at least 95 %, computed and not simulated."""
    ends = [share_interval(solved, seeds) for solved in range(seeds + 1)]
    for share in np.linspace(0.001, 0.999, 999):
        chances = binom.pmf(np.arange(seeds + 1), seeds, share)
        held = sum(chance for chance, (low, high) in zip(chances, ends, strict=True) if low <= share <= high)
        assert held >= CONFIDENCE - 1e-9


def test_five_of_five_seeds_have_the_tabulated_interval() -> None:
    assert share_interval(5, 5) == pytest.approx((0.478, 1.0), abs=1e-3)
    assert share_interval(4, 5) == pytest.approx((0.284, 0.995), abs=1e-3)
