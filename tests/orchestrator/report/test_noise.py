"""Variances, intervals and p values agree with tables and textbook formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.report.noise import (
    Sample,
    Variance,
    beside_single,
    difference_of,
    half_width,
    mean_of,
    welch,
)


def sample(scores: object, name: str = "a", data: str = "d", *, share: bool = False) -> Sample:
    """Return a sample whose scores are recorded."""
    table = np.asarray(scores, float)
    return Sample(name, table.mean(axis=1), table, data, share)


def unrecorded(values: list[float], name: str = "a") -> Sample:
    """Return a sample of an evaluation that recorded no scores."""
    return Sample(name, np.asarray(values), None, "d", share=False)


def test_the_interval_over_seeds_is_students() -> None:
    # t = 4.3027 with 2 degrees of freedom is the tabulated two-sided 5 % point.
    half = 4.3027 / math.sqrt(3)
    interval = mean_of(unrecorded([-1.0, 0.0, 1.0])).interval(0.025)
    assert interval == pytest.approx((-half, half), abs=1e-4)


def test_an_interval_ends_where_the_p_value_says() -> None:
    rng = np.random.default_rng(0)
    measured = difference_of(sample(rng.normal(size=(3, 50))), sample(rng.normal(size=(4, 50)) + 0.5))
    low, high = measured.interval(0.01)
    assert low is not None
    assert high is not None
    assert measured.p_value(low) == pytest.approx(0.02)
    assert measured.p_value(high) == pytest.approx(0.02)
    assert measured.p_value(measured.centre) == 1.0


def test_a_very_small_p_value_counts_as_zero() -> None:
    assert mean_of(sample(np.full((2, 9), 0.5))).p_value(0.4) == 0.0


def test_degrees_of_freedom_are_welchs() -> None:
    # Equal variances and sizes add their degrees; a source without variance adds none.
    assert welch([Variance(0.5, 2), Variance(0.5, 2)]) == Variance(1.0, 4.0)
    assert welch([Variance(0.5, 2), Variance(0.0, 9)]) == Variance(0.5, 2.0)
    assert welch([Variance(0.0, 2), Variance(0.0, 9)]) == Variance(0.0, 11)


def test_squared_half_widths_add_up() -> None:
    seeds, examples = Variance(0.04, 2), Variance(0.09, 99)
    both = half_width([seeds, examples], 0.025)
    assert both**2 == pytest.approx(half_width([seeds], 0.025) ** 2 + half_width([examples], 0.025) ** 2)


def test_seeds_and_examples_are_both_in_the_noise() -> None:
    measured = mean_of(sample([[0.0, 2.0], [1.0, 3.0], [2.0, 4.0]]))
    assert measured.mean == 2.0
    assert measured.seeds == (Variance(1.0 / 3, 2),)
    assert measured.examples == Variance(1.0, 1)
    assert measured.sources == ("seeds", "examples")


def test_noise_that_is_not_known_is_left_out() -> None:
    one = mean_of(sample([[0.0, 1.0, 1.0]]))
    assert (one.sources, one.complete) == (("examples",), False)
    without = mean_of(unrecorded([0.4, 0.6]))
    assert (without.sources, without.complete) == (("seeds",), False)
    neither = mean_of(unrecorded([0.4]))
    assert (neither.sources, neither.interval(0.025)) == ((), (None, None))
    pair = difference_of(sample([[0.0, 1.0], [0.5, 0.5]]), sample([[0.0, 1.0]]))
    assert pair.sources == ("examples",)


def test_the_same_examples_are_paired() -> None:
    """Examples that are hard for both settings add no noise to their difference."""
    rng = np.random.default_rng(0)
    hard = rng.normal(size=100)
    first = hard + 0.1 * rng.normal(size=(3, 100))
    second = hard + 0.1 * rng.normal(size=(3, 100))
    paired = difference_of(sample(first), sample(second)).examples
    apart = difference_of(sample(first), sample(second, data="other")).examples
    assert paired is not None
    assert apart is not None
    assert paired.value < 0.02 * apart.value
    assert paired.degrees == 99
    assert apart.degrees == pytest.approx(198, abs=1)


def test_what_seed_and_example_cause_together_counts_once() -> None:
    """Noise that is drawn for each answer is in the variance over seeds, and not in that over examples."""
    rng = np.random.default_rng(0)
    drawn = [sample(rng.normal(size=(3, 5000))) for _ in range(2)]
    measured = difference_of(*drawn)
    assert measured.examples is not None
    assert measured.examples.value < 0.1 * 2 / (3 * 5000)
    hard = sample(rng.normal(size=5000) + rng.normal(size=(3, 5000)))
    alone = mean_of(hard).examples
    assert alone is not None
    assert alone.value == pytest.approx(1 / 5000, rel=0.1)


@pytest.mark.parametrize(("right", "low", "high"), [(40, 0.8910, 1.0181), (15, 0.2379, 0.5348)])
def test_shares_get_pseudo_examples(right: int, low: float, high: float) -> None:
    """The interval of Agresti and Coull, here with Student's quantile, for right answers of 40."""
    scores = sample([[1.0] * right + [0.0] * (40 - right)], share=True)
    assert mean_of(scores).interval(0.025) == pytest.approx((low, high), abs=1e-4)
    assert mean_of(scores).mean == right / 40


def test_two_equal_shares_may_differ() -> None:
    perfect = sample([[1.0] * 40] * 3, share=True)
    for data in ("d", "other"):
        low, high = difference_of(perfect, sample([[1.0] * 40] * 3, data=data, share=True)).interval(0.025)
        assert low is not None
        assert high is not None
        assert -0.1 < low < 0.0 < high < 0.1


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_a_single_training_is_rarely_found_to_differ_from_its_like(paired: bool, spread: float) -> None:
    """Of 1,000 trainings beside three seeds of the same setting, at most a twentieth and a margin."""
    rng, found = np.random.default_rng(0), 0
    for _ in range(1000):
        seeds = spread * rng.normal(size=(4, 1)) / 5
        examples = rng.normal(size=25) if paired else rng.normal(size=(4, 25))
        scores = seeds + examples + rng.normal(size=(4, 25))
        if not paired:
            scores[:3] = seeds[:3] + examples[0] + rng.normal(size=(3, 25))
        others = sample(scores[:3])
        single = sample(scores[3:], "b") if paired else unrecorded([float(scores[3].mean())], "b")
        found += beside_single(others, single).p_value() <= 0.05
    assert found / 1000 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1000)


def test_a_single_training_beside_seeds_without_scores_has_their_noise() -> None:
    """The prediction interval of one more observation: variance 1 of the seeds, times 1 + 1/3."""
    measured = beside_single(unrecorded([1.0, 2.0, 3.0]), unrecorded([2.5], "b"))
    assert measured.mean == -0.5
    assert measured.seeds == (Variance(pytest.approx(4 / 3), 2),)
    assert measured.examples is None
