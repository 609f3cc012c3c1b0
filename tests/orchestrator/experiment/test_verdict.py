"""Verdicts are functions of values by seed, a published figure, its tolerance and comparability."""

from __future__ import annotations

import pytest

from orchestrator.experiment.order import Ordering
from orchestrator.experiment.verdict import (
    Answer,
    StatedFigure,
    answered,
    answered_order,
    interval,
    judged,
    ordered,
)

FIGURE = StatedFigure(value=0.9, error=0.01, tolerance=0.02)


SIZE = "at the size of the profile laptop"
ENOUGH = "if difference and noise are as measured, 9 seeds of each would be enough"


def measured(winner: str | None, reason: str, enough: int | None = None) -> Ordering:
    """Return a measured difference of two arms."""
    return Ordering(0.1, None, None, None, winner, reason, (), enough)


def outcome(
    *values: float, published: StatedFigure | None = FIGURE, obstacle: str = "", seeds: int = 3
) -> str:
    return judged(values, published, seeds=seeds, obstacle=obstacle).outcome


@pytest.mark.parametrize("mean", [0.881, 0.9, 0.919])
def test_a_mean_within_the_tolerance_reproduces_a_figure(mean: float) -> None:
    assert outcome(mean - 0.01, mean, mean + 0.01) == "reproduced"


@pytest.mark.parametrize("mean", [0.87, 0.93])
def test_a_mean_outside_the_tolerance_does_not_on_either_side(mean: float) -> None:
    verdict = judged([mean] * 3, FIGURE, seeds=3, obstacle="")
    assert verdict.outcome == "not reproduced"
    assert "against 0.9 (0.01) ± 0.02" in verdict.phrase


def test_a_bound_is_met_on_its_side_alone() -> None:
    above, below = StatedFigure(at_least=0.918), StatedFigure(at_most=0.0065)
    assert outcome(0.92, 0.93, 0.95, published=above) == "reproduced"
    assert outcome(0.90, 0.91, 0.92, published=above) == "not reproduced"
    assert outcome(1e-4, 1e-4, 1e-4, published=below) == "reproduced"
    assert outcome(0.06, 0.06, 0.06, published=below) == "not reproduced"


def test_a_verdict_says_that_other_seeds_may_have_another_one() -> None:
    """A mean within the tolerance by luck, or just outside, is told from one that is sure."""
    lucky = judged([0.5, 0.9, 1.3], FIGURE, seeds=3, obstacle="")
    assert lucky.outcome == "reproduced"
    assert lucky.reason.endswith(
        "; the interval reaches beyond the tolerance, so other seeds may not reproduce it"
    )
    near = judged([0.90, 0.91, 0.94], StatedFigure(at_least=0.918), seeds=3, obstacle="")
    assert near.outcome == "not reproduced"
    assert near.reason.endswith("; the interval reaches the bound, so other seeds may reproduce it")
    for values in ([0.899, 0.9, 0.901], [0.5, 0.5, 0.501], [0.9]):
        assert "may" not in judged(values, FIGURE, seeds=len(values), obstacle="").reason


def test_what_does_not_compare_is_said_before_any_value_is_read() -> None:
    verdict = judged([0.9] * 3, FIGURE, seeds=3, obstacle="a subset of CIFAR-10")
    assert verdict.phrase == "not comparable, because a subset of CIFAR-10"
    assert judged([0.9] * 3, None, seeds=3, obstacle="").phrase == "the paper prints no figure for it"


def test_missing_seeds_leave_a_figure_undecided() -> None:
    verdict = judged([0.9, 0.9], FIGURE, seeds=3, obstacle="")
    assert verdict.phrase == "not comparable, because 2 of 3 seeds have a value"


def test_a_single_seed_is_judged_and_named() -> None:
    verdict = judged([0.95], FIGURE, seeds=1, obstacle="")
    assert verdict.phrase == "not reproduced: 0.95 (one seed) against 0.9 (0.01) ± 0.02"


def test_the_interval_is_that_of_students_t() -> None:
    """Of 1, 2, 3: the quantile for two degrees of freedom is 4.3027, the standard error 0.57735."""
    ends = interval([1.0, 2.0, 3.0])
    assert ends == pytest.approx((2 - 4.3026527 * 0.5773503, 2 + 4.3026527 * 0.5773503))
    assert interval([1.0]) is None
    assert interval([0.9, 0.9, 0.9]) is None


@pytest.mark.parametrize("value", [0.865, 0.885, 0.845, 0.905])
def test_the_ends_of_a_tolerance_belong_to_it_despite_rounding(value: float) -> None:
    """The mean of three times 0.865 is 0.8649999999999999."""
    figure = StatedFigure(value=0.875, tolerance=abs(value - 0.875))
    assert judged([value] * 3, figure, seeds=3, obstacle="").outcome == "reproduced"


@pytest.mark.parametrize(
    ("winner", "expected"),
    [
        ("rotrnn", "reproduced: rotrnn is better"),
        ("lru", "not reproduced: lru is better"),
        (None, "not established: p = 0.3"),
    ],
)
def test_an_order_of_arms_is_judged_by_the_winner(winner: str | None, expected: str) -> None:
    assert ordered("rotrnn", "lru", measured(winner, "p = 0.3")).phrase == expected


def test_an_order_without_a_difference_is_not_established_and_says_what_would_be_enough() -> None:
    """No difference between two arms is no evidence against a paper that prints one."""
    verdict = ordered("rotrnn", "lru", measured(None, "p = 0.3", 9))
    assert verdict.phrase == f"not established: p = 0.3; {ENOUGH}"


@pytest.mark.parametrize(
    ("found", "here"),
    [
        (measured("rotrnn", ""), "rotrnn is better"),
        (measured("lru", ""), "lru is better"),
        (
            measured(None, "p = 0.3", 9),
            f"p = 0.3; {ENOUGH}",
        ),
    ],
)
def test_an_order_of_other_arms_than_the_papers_is_found_and_not_judged(found: Ordering, here: str) -> None:
    verdict = ordered("rotrnn", "lru", found, obstacle="depth 2 instead of 6", size=SIZE)
    assert verdict.phrase == f"not comparable, because depth 2 instead of 6. Here, {SIZE}: {here}"
    waiting = ordered("rotrnn", "lru", found, lack="0 seeds of lru", obstacle="other data", size=SIZE)
    assert waiting.phrase == "not comparable, because 0 seeds of lru; other data"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.98, 0.99, 1.0), "confirmed"),
        ((0.5, 0.51, 0.52), "refuted"),
        ((0.99, 0.98, 0.5), "not established"),
        ((0.9, 0.99, 0.98), "not established"),
        ((0.99,), "not established"),
        ((0.99, 0.98), "not established"),
        ((1.0, 1.0, 1.0), "not established"),
        ((0.5, 0.5, 0.5), "not established"),
    ],
)
def test_a_hypothesis_is_tested_by_the_whole_interval(values: tuple[float, ...], expected: Answer) -> None:
    """A mean above the bound confirms nothing while its interval contains the bound, or seeds are missing.

    Three seeds of equal values show no noise: of networks of which a quarter fail, four tenths of the threes
    would all succeed.
    """
    bound = StatedFigure(at_least=0.9)
    verdict = answered(values, bound, seeds=1 if len(values) == 1 else 3, size=SIZE, lack="")
    assert verdict.outcome == expected
    assert "not comparable" not in verdict.phrase
    if len(values) == 3:
        assert verdict.phrase.endswith((SIZE, f"{SIZE}; equal seeds show no noise"))


def test_a_hypothesis_is_not_confirmed_by_the_luck_of_its_test_examples() -> None:
    """Three seeds agree, and another thousand examples may say otherwise."""
    values, bound = (0.906, 0.907, 0.908), StatedFigure(at_least=0.9)
    seeds_alone = answered(values, bound, seeds=3, size="at a size")
    both = answered(values, bound, seeds=3, size="at a size", ends=(0.893, 0.921))
    assert (seeds_alone.outcome, both.outcome) == ("confirmed", "not established")
    assert "(from 0.893 to 0.921 with 95 % confidence, 3 seeds and their test examples)" in both.reason


def test_a_hypothesis_about_an_arm_that_cannot_run_is_not_established() -> None:
    bound = StatedFigure(at_most=0.9)
    verdict = answered([], bound, seeds=3, size=SIZE, lack="the data of text are missing")
    assert verdict.phrase == "not established: the data of text are missing"
    assert answered([0.1], None, seeds=1, size=SIZE, lack="").outcome is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (measured("rotrnn", ""), f"confirmed: rotrnn is better {SIZE}"),
        (measured("lru", ""), f"refuted: lru is better {SIZE}"),
        (
            measured(None, "p = 0.3", 9),
            f"not established: p = 0.3; {ENOUGH}, {SIZE}",
        ),
    ],
)
def test_a_supposed_order_is_tested_at_its_size(found: Ordering, expected: str) -> None:
    assert answered_order("rotrnn", "lru", found, size=SIZE, lack="").phrase == expected
    assert answered_order("rotrnn", "lru", found, size=SIZE, lack="no seeds").outcome == "not established"
