"""Welch's test over seeds claims differences as rarely as it promises, and no difference from one seed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_ind

from orchestrator.experiment.order import LEVEL, difference


def test_it_is_welchs_test() -> None:
    first, second = [1.0, 2.0, 4.0], [3.0, 3.5, 5.0, 5.5]
    expected = ttest_ind(first, second, equal_var=False)
    ends = expected.confidence_interval(0.95)
    measured = difference(first, second, maximize=True)
    assert measured.p == pytest.approx(expected.pvalue)
    assert (measured.low, measured.high) == pytest.approx((ends.low, ends.high))
    assert not measured.first_leads
    assert difference(first, second, maximize=False).first_leads


def test_several_comparisons_share_the_level() -> None:
    one = difference([1.0, 1.1, 1.2], [1.4, 1.5, 1.6], maximize=True)
    many = difference([1.0, 1.1, 1.2], [1.4, 1.5, 1.6], maximize=True, comparisons=10)
    assert one.p is not None
    assert many.p == pytest.approx(10 * one.p)
    assert one.is_established
    assert not many.is_established
    assert many.low is not None
    assert one.low is not None
    assert many.low < one.low


def test_a_single_seed_establishes_nothing() -> None:
    measured = difference([1.0], [2.0, 2.1], maximize=True)
    assert (measured.p, measured.is_established, measured.reason) == (None, False, "a single seed")


def test_equal_constants_do_not_differ_and_other_constants_do() -> None:
    assert difference([1.0, 1.0], [1.0, 1.0], maximize=True).p == 1.0
    assert difference([1.0, 1.0], [2.0, 2.0], maximize=True).is_established


def test_false_differences_are_as_rare_as_promised() -> None:
    """Of 4,000 pairs of three and five equal seeds, at most the level is claimed to differ, and a margin."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4000, 8))
    claimed = sum(difference(row[:3], row[3:], maximize=True).is_established for row in draws)
    assert claimed / 4000 < LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / 4000)
