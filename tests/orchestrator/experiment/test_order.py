"""Arms are compared by their seeds, and by the scores of test examples where they are recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import permutation_test, ttest_ind, ttest_rel

from orchestrator.experiment.order import exchange_p, flip_p, ordering
from orchestrator.report.noise import Sample
from orchestrator.report.statistics import CONFIDENCE, compared


def sample(name: str, *values: float, scores: np.ndarray | None = None) -> Sample:
    return Sample(name, np.array(values), scores, "feed", share=False)


def test_without_examples_it_is_welchs_test() -> None:
    """With unequal noise, its p value is the larger one."""
    first, second = sample("a", 0.0, 5.0, 10.0, 15.0, 1.0), sample("b", 10.0, 10.1, 10.2, 10.1, 10.0)
    expected = ttest_ind(first.values, second.values, equal_var=False)
    ends = expected.confidence_interval(CONFIDENCE)
    measured = ordering(first, second, maximize=True)
    assert expected.pvalue > exchange_p(first.values, second.values)
    assert measured.p == pytest.approx(expected.pvalue)
    assert (measured.low, measured.high) == pytest.approx((ends.low, ends.high))
    assert measured.sources == ("seeds",)
    assert (measured.winner, measured.reason) == (None, "")


def test_the_exact_test_is_that_of_scipy() -> None:
    """With ties, of unequal numbers of seeds, and of differences by seed."""
    rng = np.random.default_rng(0)

    def difference(first: np.ndarray, second: np.ndarray, axis: int) -> np.ndarray:
        return np.asarray(first.mean(axis=axis) - second.mean(axis=axis))

    for seeds in ((3, 3), (4, 5), (5, 5)):
        both = [rng.integers(0, 4, count).astype(float) for count in seeds]
        expected = permutation_test(both, difference, vectorized=True, n_resamples=np.inf)
        assert exchange_p(*both) == pytest.approx(expected.pvalue)
    differences = rng.normal(size=6)
    flipped = permutation_test(
        [differences], np.mean, vectorized=True, permutation_type="samples", n_resamples=np.inf
    )
    assert flip_p(differences) == pytest.approx(flipped.pvalue)


def test_many_seeds_are_exchanged_at_random() -> None:
    """Reproducibly, and never with a p value of zero."""
    first, second = np.arange(20.0), np.arange(20.0) + 100
    assert exchange_p(first, second) == 2 / 20_001
    assert exchange_p(first, first) == 1.0
    assert flip_p(first + 1.0) == 2 / 20_001


@pytest.mark.parametrize("solved", [0.98, 1.0])
def test_three_seeds_that_solve_a_task_beside_three_that_do_not_may_be_luck(solved: float) -> None:
    """Their values agree to two digits, and of equal arms that solve it half of the time, 3 % do this."""
    able, unable = sample("a", solved, 0.979, 0.981), sample("b", 0.101, 0.1, 0.102)
    assert ttest_ind(able.values, unable.values, equal_var=False).pvalue < 1e-3
    measured = ordering(able, unable, maximize=True)
    assert (measured.p, measured.winner) == (pytest.approx(2 / 20), None)


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
    first = sample("a", 1.0, 5.0, 9.0, 14.0, 3.0, 8.0, 2.0)
    second = sample("b", 1.5, 5.6, 9.4, 14.7, 3.5, 8.6, 2.1)
    expected = ttest_rel(first.values, second.values)
    ends = expected.confidence_interval(CONFIDENCE)
    measured = ordering(first, second, maximize=False, paired=True)
    assert expected.pvalue < 2 / 2**7
    assert measured.p == pytest.approx(2 / 2**7)
    assert measured.low is not None
    assert measured.high is not None
    assert measured.low <= ends.low
    assert measured.high >= ends.high
    assert (measured.winner, measured.sources) == ("a", ("paired seeds",))
    assert ordering(first, second, maximize=False).winner is None
    assert ordering(sample("a", 1.0), second, maximize=False, paired=True).winner is None


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_interval_holds_the_shifts_that_are_not_rejected(paired: bool, seed: int) -> None:
    """Both ends are where the p value of the shifted arm crosses the level."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=8), np.where(rng.random(8) < 0.5, 0.0, 1.0) + 1e-3 * rng.normal(size=8)
    found = ordering(sample("a", *first), sample("b", *second), maximize=True, paired=paired)
    assert found.low is not None
    assert found.high is not None
    for end, outwards in ((found.low, -1e-6), (found.high, 1e-6)):
        out, inside = (
            ordering(sample("a", *first - end - by), sample("b", *second), maximize=True, paired=paired).p
            for by in (outwards, -outwards)
        )
        assert out is not None
        assert inside is not None
        assert out <= 1 - CONFIDENCE < inside


def test_a_difference_of_shares_has_an_interval_within_their_bounds() -> None:
    values = [np.array([1.0, 0.0, 1.0, 0.9, 0.0]), np.array([0.0, 0.1, 0.0, 0.0, 0.9])]
    both = [Sample(name, own, None, "", share=True) for name, own in zip("ab", values, strict=True)]
    free = [replace(own, share=False) for own in both]
    bounded, unbounded = (ordering(*pair, maximize=True) for pair in (both, free))
    assert unbounded.high is not None
    assert unbounded.high > 1
    assert (bounded.low, bounded.high) == (unbounded.low, 1.0)


@pytest.mark.parametrize(("maximize", "winner"), [(True, "b"), (False, "a")])
def test_the_better_side_is_that_of_the_file(maximize: bool, winner: str) -> None:
    first, second = sample("a", 1.0, 1.1, 1.2, 1.1), sample("b", 1.4, 1.5, 1.6, 1.5)
    assert ordering(first, second, maximize=maximize).winner == winner
    assert ordering(second, first, maximize=maximize).winner == winner


def test_several_comparisons_share_the_confidence_of_the_interval() -> None:
    """The p value is that of the difference alone, which its family corrects."""
    first, second = sample("a", *[1.0, 1.1, 1.2, 1.1] * 2), sample("b", *[1.4, 1.5, 1.6, 1.5] * 2)
    one = ordering(first, second, maximize=True)
    many = ordering(first, second, maximize=True, comparisons=10)
    assert many.p == one.p
    assert (one.comparisons, many.comparisons) == (1, 10)
    assert ordering(first, second, maximize=True, comparisons=1000).low is None, "no exchange is so rare"
    assert one.low is not None
    assert many.low is not None
    assert many.low < one.low


def test_a_single_seed_establishes_nothing() -> None:
    measured = ordering(sample("a", 1.0), sample("b", 2.0, 2.1), maximize=True)
    assert (measured.p, measured.winner) == (None, None)
    assert "a single seed" in measured.reason


@pytest.mark.parametrize("paired", [False, True])
def test_equal_seeds_decide_by_their_number(paired: bool) -> None:
    """They have no interval; three of each may be luck, and six of each are not."""
    for seeds, winner in ((3, None), (6, "b")):
        one, two = sample("a", *[1.0] * seeds), sample("b", *[2.0] * seeds)
        measured = ordering(one, two, maximize=True, paired=paired)
        assert (measured.winner, measured.low, measured.detectable) == (winner, None, None)
        assert measured.phrase == "-1"


@pytest.mark.parametrize("paired", [False, True])
def test_two_seeds_establish_nothing(paired: bool) -> None:
    measured = ordering(sample("a", 1.0, 1.001), sample("b", 2.0, 2.002), maximize=True, paired=paired)
    assert (measured.p, measured.winner) == (pytest.approx(0.5 if paired else 1 / 3), None)


def test_other_data_and_values_that_are_not_finite_are_not_compared() -> None:
    first, second = sample("a", 1.0, 1.1, 1.2, 1.1), sample("b", 2.0, 2.1, 2.2, 2.1)
    assert ordering(first, second, maximize=True).winner == "b"
    other = ordering(first, replace(second, data="other"), maximize=True)
    assert (other.winner, other.reason) == (None, "the two arms have different data")
    wrong = ordering(first, sample("b", 2.0, np.nan, 2.2), maximize=True)
    assert (wrong.winner, wrong.reason, wrong.detectable) == (None, "a value of b is not finite", None)


def test_scores_that_are_missing_are_noise_that_is_unknown() -> None:
    """Seeds may agree on test examples of which others would say something else."""
    scores = np.zeros((4, 10))
    first, second = sample("a", 0.5, 0.51, 0.52, 0.51, scores=scores), sample("b", 0.6, 0.61, 0.62, 0.61)
    assert ordering(first, second, maximize=True).winner == "b"
    measured = ordering(first, second, maximize=True, scored=True)
    assert (measured.winner, measured.p) == (None, None)
    assert measured.reason == "the scores of the test examples are not recorded for b"


def test_with_examples_both_sources_of_noise_count() -> None:
    """Two arms differ on 20 of 100 shared examples: the noise of examples widens the interval."""
    rng = np.random.default_rng(0)
    first = (rng.random((5, 100)) < 0.55).astype(float)
    second = (rng.random((5, 100)) < 0.5).astype(float)
    a = sample("a", *first.mean(axis=1), scores=first)
    b = sample("b", *second.mean(axis=1), scores=second)
    measured = ordering(a, b, maximize=True)
    (expected,) = compared([a, b]).differences
    assert (measured.low, measured.high) == (expected.low, expected.high)
    assert expected.p is not None
    assert measured.p == max(expected.p, exchange_p(a.values, b.values))
    assert measured.sources == ("seeds", "examples")


def test_false_differences_are_as_rare_as_promised() -> None:
    """Of 4,000 pairs of three and five equal seeds, at most the level is claimed to differ, and a margin."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4000, 8))
    pairs = ((sample("a", *row[:3]), sample("b", *row[3:])) for row in draws)
    claimed = sum(ordering(first, second, maximize=True).winner is not None for first, second in pairs)
    level = 1 - CONFIDENCE
    assert claimed / 4000 < level + 3 * np.sqrt(level * (1 - level) / 4000)
