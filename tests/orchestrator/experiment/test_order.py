"""Arms are compared by their seeds, and by the scores of test examples where they are recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_ind, ttest_rel

from orchestrator.experiment.order import ordering
from orchestrator.report.noise import Sample
from orchestrator.report.statistics import CONFIDENCE, compared


def sample(name: str, *values: float, scores: np.ndarray | None = None) -> Sample:
    return Sample(name, np.array(values), scores, "feed", share=True)


def test_without_examples_it_is_welchs_test() -> None:
    first, second = sample("a", 1.0, 2.0, 4.0), sample("b", 3.0, 3.5, 5.0, 5.5)
    expected = ttest_ind(first.values, second.values, equal_var=False)
    ends = expected.confidence_interval(CONFIDENCE)
    measured = ordering(first, second, maximize=True)
    assert measured.p == pytest.approx(expected.pvalue)
    assert (measured.low, measured.high) == pytest.approx((ends.low, ends.high))
    assert measured.sources == ("seeds",)
    assert (measured.winner, measured.reason) == (
        None,
        f"no difference is established, p = {expected.pvalue:.2g}",
    )


@pytest.mark.parametrize("paired", [False, True])
def test_the_detectable_difference_is_established_as_often_as_promised(paired: bool) -> None:
    """In eight of ten cases, with the noise behind it; the measured difference has no effect."""
    rng, seeds, found = np.random.default_rng(0), 8, []
    exact = np.sqrt(7 / 8) * np.array([1.0, -1.0] * 4)
    second = sample("b", *(np.zeros(seeds) if paired else exact))
    for shift in (0.0, 0.2):
        measured = ordering(sample("a", *(exact + shift)), second, maximize=True, paired=paired)
        assert measured.detectable is not None
        found.append(measured.detectable)
    assert found[0] == pytest.approx(found[1])
    wins = 0
    for _ in range(500):
        other = np.zeros(seeds) if paired else rng.normal(size=seeds)
        values = rng.normal(found[0], 1, seeds)
        wins += (
            ordering(sample("a", *values), sample("b", *other), maximize=True, paired=paired).winner == "a"
        )
    assert wins / 500 == pytest.approx(0.8, abs=0.06)


def test_paired_seeds_are_compared_by_their_differences() -> None:
    """The system that a seed draws varies by far more than the arms differ."""
    first, second = sample("a", 1.0, 5.0, 9.0, 14.0), sample("b", 1.5, 5.6, 9.4, 14.7)
    expected = ttest_rel(first.values, second.values)
    ends = expected.confidence_interval(CONFIDENCE)
    measured = ordering(first, second, maximize=False, paired=True)
    assert measured.p == pytest.approx(expected.pvalue)
    assert (measured.low, measured.high) == pytest.approx((ends.low, ends.high))
    assert (measured.winner, measured.sources) == ("a", ("paired seeds",))
    assert ordering(first, second, maximize=False).winner is None
    assert ordering(sample("a", 1.0), second, maximize=False, paired=True).winner is None


@pytest.mark.parametrize(("maximize", "winner"), [(True, "b"), (False, "a")])
def test_the_better_side_is_that_of_the_file(maximize: bool, winner: str) -> None:
    first, second = sample("a", 1.0, 1.1, 1.2), sample("b", 1.4, 1.5, 1.6)
    assert ordering(first, second, maximize=maximize).winner == winner
    assert ordering(second, first, maximize=maximize).winner == winner


def test_several_claims_share_the_confidence() -> None:
    first, second = sample("a", 1.0, 1.1, 1.2), sample("b", 1.4, 1.5, 1.6)
    one = ordering(first, second, maximize=True)
    many = ordering(first, second, maximize=True, comparisons=10)
    assert one.p is not None
    assert many.p == pytest.approx(10 * one.p)
    assert many.winner is None
    assert one.low is not None
    assert many.low is not None
    assert many.low < one.low


def test_a_single_seed_establishes_nothing() -> None:
    measured = ordering(sample("a", 1.0), sample("b", 2.0, 2.1), maximize=True)
    assert (measured.p, measured.winner) == (None, None)
    assert "a single seed" in measured.reason


@pytest.mark.parametrize("paired", [False, True])
def test_equal_seeds_establish_nothing(paired: bool) -> None:
    """They show no noise, so another seed may have any value."""
    one, two = sample("a", 1.0, 1.0, 1.0), sample("b", 2.0, 2.0, 2.0)
    measured = ordering(one, two, maximize=True, paired=paired)
    assert (measured.winner, measured.p, measured.detectable) == (None, None, None)
    assert measured.phrase == "-1"
    assert measured.reason == "equal seeds show no noise to compare with"


@pytest.mark.parametrize("paired", [False, True])
def test_two_seeds_establish_nothing(paired: bool) -> None:
    """As in `compare`; the distances of two values from their median are always equal."""
    measured = ordering(sample("a", 1.0, 1.001), sample("b", 2.0, 2.002), maximize=True, paired=paired)
    assert measured.winner is None
    assert measured.reason == "fewer than 3 seeds of an arm"


def test_other_data_and_values_that_are_not_finite_are_not_compared() -> None:
    first, second = sample("a", 1.0, 1.1, 1.2), sample("b", 2.0, 2.1, 2.2)
    assert ordering(first, second, maximize=True).winner == "b"
    other = ordering(first, replace(second, data="other"), maximize=True)
    assert (other.winner, other.reason) == (None, "the two arms have different data")
    wrong = ordering(first, sample("b", 2.0, np.nan, 2.2), maximize=True)
    assert (wrong.winner, wrong.reason, wrong.detectable) == (None, "a value of b is not finite", None)


def test_scores_that_are_missing_are_noise_that_is_unknown() -> None:
    """Seeds may agree on test examples of which others would say something else."""
    scores = np.zeros((3, 10))
    first, second = sample("a", 0.5, 0.51, 0.52, scores=scores), sample("b", 0.6, 0.61, 0.62)
    assert ordering(first, second, maximize=True).winner == "b"
    measured = ordering(first, second, maximize=True, scored=True)
    assert (measured.winner, measured.p) == (None, None)
    assert measured.reason == "the scores of the test examples are not recorded for b"


def test_with_examples_both_sources_of_noise_count() -> None:
    """Two arms differ on 20 of 100 shared examples: the noise of examples widens the interval."""
    rng = np.random.default_rng(0)
    first = (rng.random((3, 100)) < 0.6).astype(float)
    second = (rng.random((3, 100)) < 0.5).astype(float)
    a = sample("a", *first.mean(axis=1), scores=first)
    b = sample("b", *second.mean(axis=1), scores=second)
    measured = ordering(a, b, maximize=True)
    (expected,) = compared([a, b]).differences
    assert (measured.low, measured.high, measured.p) == (expected.low, expected.high, expected.p)
    assert measured.sources == ("seeds", "examples")


def test_false_differences_are_as_rare_as_promised() -> None:
    """Of 4,000 pairs of three and five equal seeds, at most the level is claimed to differ, and a margin."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4000, 8))
    pairs = ((sample("a", *row[:3]), sample("b", *row[3:])) for row in draws)
    claimed = sum(ordering(first, second, maximize=True).winner is not None for first, second in pairs)
    level = 1 - CONFIDENCE
    assert claimed / 4000 < level + 3 * np.sqrt(level * (1 - level) / 4000)
