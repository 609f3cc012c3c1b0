"""What a comparison promises holds in simulation, and it claims nothing where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from orchestrator.report.noise import Measured, Sample, difference_of
from orchestrator.report.statistics import (
    Comparison,
    against,
    compared,
    detectable,
    estimated,
    holm,
)


def normal(
    rng: np.random.Generator, name: str, mean: float, seeds: int, examples: np.ndarray, *, by_seed: float
) -> Sample:
    """Draw scores with noise of seeds, of examples that all samples share, and of single scores."""
    noise = by_seed * rng.normal(size=(seeds, 1)) + rng.normal(size=(seeds, len(examples)))
    scores = mean + examples + noise
    return Sample(name, scores.mean(axis=1), scores, "d", share=False)


def right(
    rng: np.random.Generator, name: str, mean: float, seeds: int, examples: np.ndarray, *, by_seed: float
) -> Sample:
    """Draw right and wrong answers whose probability depends on the seed and on the example."""
    chance = ndtr(mean + by_seed * rng.normal(size=(seeds, 1)) + examples)
    scores = (rng.random(chance.shape) < chance).astype(float)
    return Sample(name, scores.mean(axis=1), scores, "d", share=True)


def share_of(mean: float, *, by_seed: float) -> float:
    """Return the probability of a right answer, over all seeds and examples of spread 1."""
    return float(ndtr(mean / np.sqrt(1 + by_seed**2 + 1)))


RUNS = 500
TOLERANCE = 0.023
"""Two standard errors of a share of 0.93 or 0.07 of `RUNS`."""


@pytest.mark.parametrize(
    ("seeds", "by_seed", "count"),
    [
        pytest.param(seeds, by_seed, count, marks=marks)
        for seeds in ((3, 3), (5, 5), (3, 10))
        for by_seed, count, marks in (
            *((0.0, 40, []), (0.1, 300, []), (0.5, 40, [])),
            *((0.0, 300, [pytest.mark.slow]), (0.1, 40, [pytest.mark.slow]), (0.5, 300, [pytest.mark.slow])),
        )
    ],
)
def test_intervals_contain_the_true_difference(seeds: tuple[int, int], by_seed: float, count: int) -> None:
    """In at least 92 % of cases, whatever the relative size of both sources of noise."""
    rng = np.random.default_rng(seeds[1] + count)
    true = share_of(1.0, by_seed=by_seed) - share_of(0.8, by_seed=by_seed)
    held = 0
    for _ in range(RUNS):
        examples = rng.normal(size=count)
        pair = [right(rng, "a", 1.0, seeds[0], examples, by_seed=by_seed)]
        pair.append(right(rng, "b", 0.8, seeds[1], examples, by_seed=by_seed))
        (difference,) = compared(pair).differences
        assert difference.low is not None
        assert difference.high is not None
        held += difference.low <= true <= difference.high
    assert held / RUNS >= 0.92 - TOLERANCE


@pytest.mark.parametrize("by_seed", [0.0, 0.1, 1.0])
def test_intervals_are_no_wider_than_promised(by_seed: float) -> None:
    """They hold the true difference in 93 to 97 % of cases, but for the error of `RUNS` of them."""
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(RUNS):
        examples = rng.normal(size=100)
        pair = [
            normal(rng, name, mean, 5, examples, by_seed=by_seed) for name, mean in (("a", 0.2), ("b", 0))
        ]
        (difference,) = compared(pair).differences
        assert difference.low is not None
        assert difference.high is not None
        held += difference.low <= 0.2 <= difference.high
    assert 0.93 - TOLERANCE <= held / RUNS <= 0.97 + 2 * (0.97 * 0.03 / RUNS) ** 0.5


@pytest.mark.parametrize("by_seed", [0.0, 0.3])
def test_the_interval_of_one_result_contains_its_true_share(by_seed: float) -> None:
    rng = np.random.default_rng(1)
    for seeds in (1, 2, 3) if by_seed == 0.0 else (2, 3):
        held = 0
        for _ in range(RUNS):
            result = estimated(right(rng, "a", 1.5, seeds, rng.normal(size=40), by_seed=by_seed))
            assert result.low is not None
            assert result.high is not None
            held += result.low <= share_of(1.5, by_seed=by_seed) <= result.high
        assert held / RUNS >= 0.95 - TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("by_seed", [0.0, 0.3])
def test_equal_settings_seldom_have_a_winner(by_seed: float) -> None:
    """Of four equal settings one is named in at most 5 % of cases."""
    rng = np.random.default_rng(2)
    winners = 0
    for _ in range(RUNS):
        examples = rng.normal(size=100)
        four = [right(rng, name, 1.0, 3, examples, by_seed=by_seed) for name in "abcd"]
        winners += compared(four).winner is not None
    assert winners / RUNS <= 0.05


def test_seeds_alone_would_name_too_many_winners() -> None:
    """Unless the noise of examples counts: the simulation can fail."""
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(RUNS):
        examples, other = rng.normal(size=(2, 40))
        first = normal(rng, "a", 0.0, 5, examples, by_seed=0.0)
        second = normal(rng, "b", 0.0, 5, other, by_seed=0.0)
        measured = difference_of(first, second)
        seeds_alone = Measured(measured.mean, measured.centre, measured.seeds, None)
        missed += seeds_alone.p_value() < 0.05
    assert missed / RUNS > 0.2


@pytest.mark.parametrize("by_seed", [0.05, 0.3])
def test_the_detectable_difference_has_the_promised_power(by_seed: float) -> None:
    """Where the variances that it was computed from are the true ones."""
    rng = np.random.default_rng(4)
    count, seeds = 400, 8
    measured = [
        difference_of(*(normal(rng, name, 0.0, seeds, np.zeros(count), by_seed=by_seed) for name in "ab"))
        for _ in range(50)
    ]
    gap = float(np.mean([detectable(each, 0.025) for each in measured]))
    found = 0
    for _ in range(RUNS):
        examples = rng.normal(size=count)
        pair = [normal(rng, "a", gap, seeds, examples, by_seed=by_seed)]
        pair.append(normal(rng, "b", 0.0, seeds, examples, by_seed=by_seed))
        found += compared(pair).winner == "a"
    assert found / RUNS == pytest.approx(0.8, abs=0.08)


def test_a_clear_difference_has_a_winner() -> None:
    rng = np.random.default_rng(6)
    examples = rng.normal(size=500)
    samples = [
        normal(rng, name, mean, 4, examples, by_seed=0.02)
        for name, mean in (("low", 0.0), ("high", 1.0), ("middle", 0.5))
    ]
    result = compared(samples)
    assert (result.winner, result.reason, result.detectable) == ("high", "", None)
    assert compared(samples, maximize=False).winner == "low"
    assert [(pair.first, pair.second) for pair in result.differences] == [
        ("low", "high"),
        ("low", "middle"),
        ("high", "middle"),
    ]
    assert all(pair.paired and pair.sources == ("seeds", "examples") for pair in result.differences)


def _two(first: list[float], second: list[float], **changes: object) -> Comparison:
    """Compare settings whose scores are the same for all 200 examples of a seed."""

    def sample(name: str, values: list[float]) -> Sample:
        fields = {"scores": np.repeat(np.array(values)[:, None], 200, axis=1), "data": "d", **changes}
        return Sample(name, np.array(values), share=False, **fields)  # type: ignore[arg-type]

    return compared([sample("a", first), sample("b", second)])


def test_one_seed_has_no_winner() -> None:
    result = _two([0.9], [0.1, 0.1, 0.2])
    assert (result.winner, result.reason) == (None, "fewer than 3 seeds of a")
    assert result.differences[0].p is None
    assert result.differences[0].sources == ("examples",)


def test_results_without_scores_have_no_winner() -> None:
    result = _two([0.9, 0.91, 0.92], [0.1, 0.11, 0.12], scores=None)
    assert result.winner is None
    assert result.reason == "the scores of the examples are not recorded for a, b"
    (difference,) = result.differences
    assert (difference.p, difference.sources) == (None, ("seeds",))
    assert difference.low is not None


def test_other_data_have_no_winner() -> None:
    scores = np.random.default_rng(7).normal(size=(3, 100))
    first = Sample("a", scores.mean(axis=1) + 9, scores + 9, "d", share=False)
    second = Sample("b", scores.mean(axis=1), scores, "e", share=False)
    result = compared([first, second])
    assert (result.winner, result.reason) == (None, "other data than a: b")
    assert not result.differences[0].paired
    assert compared([first]).reason == "it has nothing to be compared with"


def test_a_small_difference_says_which_one_would_be_established() -> None:
    result = _two([0.50, 0.52, 0.54], [0.49, 0.51, 0.53])
    assert result.winner is None
    assert result.reason == "a is not established to differ from b"
    # Four degrees of freedom: quantiles 2.7764 and 0.9410 times the standard error 0.02 * sqrt(2 / 3).
    assert result.detectable == pytest.approx((2.7764 + 0.9410) * 0.02 * (2 / 3) ** 0.5, rel=1e-3)


def test_holms_correction_is_the_textbooks() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], 4) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, 0.5], 4) == pytest.approx([0.04, 1.0])
    assert holm([], 1) == []


def test_more_comparisons_widen_the_intervals() -> None:
    rng = np.random.default_rng(8)
    pair = [normal(rng, name, 0.0, 3, np.zeros(50), by_seed=0.1) for name in "ab"]
    (alone,), (shared,) = compared(pair).differences, compared(pair, comparisons=6).differences
    assert None not in (alone.low, alone.high, shared.low, shared.high, alone.p, shared.p)
    assert shared.high - shared.low > 1.5 * (alone.high - alone.low)  # type: ignore[operator]
    assert shared.p == pytest.approx(min(1.0, 6 * alone.p))  # type: ignore[operator]


def test_a_mean_against_a_figure() -> None:
    # t = 4.3027 with 2 degrees of freedom is the tabulated two-sided 5 % point.
    values = np.array([-1.0, 0.0, 1.0])
    sample = Sample("a", values, None, "d", share=False)
    assert against(sample, 4.3027 / 3**0.5) == pytest.approx(0.05, abs=1e-4)
    assert against(Sample("a", values[:1], None, "d", share=False), 0.5) is None


def test_the_interval_of_a_share_stays_within_its_bounds() -> None:
    perfect = Sample("a", np.ones(3), np.ones((3, 40)), "d", share=True)
    result = estimated(perfect)
    assert (result.mean, result.high) == (1.0, 1.0)
    assert result.low == pytest.approx(0.8910, abs=1e-4)
