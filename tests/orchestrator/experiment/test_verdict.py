"""Verdicts are functions of values by seed, a published figure, its tolerance and comparability."""

from __future__ import annotations

import pytest

from orchestrator.experiment.order import Ordering
from orchestrator.experiment.verdict import (
    Answer,
    Corrected,
    StatedFigure,
    answered,
    answered_order,
    interval,
    judged,
    ordered,
)
from orchestrator.report.noise import Variance

FIGURE = StatedFigure(value=0.9, error=0.01, tolerance=0.02)


SIZE = "at the size of the profile laptop"
NONE = "no difference is established, p = 0.3"
ENOUGH = f"{NONE}; a difference of 0.25 would be, in 80 % of cases"


def measured(winner: str | None, detectable: float | None = None) -> Ordering:
    """Return a measured difference of two arms."""
    return Ordering(0.1, None, None, 0.01 if winner else 0.3, winner, "", (), detectable)


def outcome(*values: float, published: StatedFigure | None = FIGURE) -> str | None:
    return judged(values, published, seeds=len(values), obstacle="").outcome


@pytest.mark.parametrize("median", [0.89, 0.9, 0.91])
def test_five_seeds_within_the_tolerance_reproduce_a_figure(median: float) -> None:
    assert outcome(*(median + step for step in (-0.01, 0, 0, 0, 0.01))) == "reproduced"


@pytest.mark.parametrize("median", [0.87, 0.93])
def test_five_seeds_outside_the_tolerance_do_not_on_either_side(median: float) -> None:
    verdict = judged([median] * 5, FIGURE, seeds=5, obstacle="")
    assert verdict.outcome == "not reproduced"
    assert "against 0.9 (0.01) ± 0.02" in verdict.phrase


def test_a_bound_is_met_on_its_side_alone() -> None:
    above, below = StatedFigure(at_least=0.918), StatedFigure(at_most=0.0065)
    assert outcome(0.92, 0.93, 0.95, 0.92, 0.99, published=above) == "reproduced"
    assert outcome(0.90, 0.91, 0.91, 0.5, 0.1, published=above) == "not reproduced"
    assert outcome(*[1e-4] * 5, published=below) == "reproduced"
    assert outcome(*[0.06] * 5, published=below) == "not reproduced"


def test_seeds_on_both_sides_leave_a_figure_undetermined() -> None:
    """The mean 0.9 is the figure itself, and no training has it."""
    verdict = judged([0.85, 0.95, 0.84, 0.96, 0.9], FIGURE, seeds=5, obstacle="")
    assert verdict.outcome == "undetermined"
    assert verdict.reason == (
        "median 0.9 (5 seeds, from 0.84 to 0.96) against 0.9 (0.01) ± 0.02; p = 0.5; seeds or the noise of"
        " test examples lie across the tolerance"
    )


def test_nine_of_ten_seeds_are_enough() -> None:
    """One failure of ten has a p value of 0.011; two of ten have 0.055."""
    bound = StatedFigure(at_least=0.9)
    assert outcome(*[0.95] * 9, 0.1, published=bound) == "reproduced"
    assert outcome(*[0.95] * 8, 0.1, 0.1, published=bound) == "undetermined"


def test_what_does_not_compare_is_said_before_any_value_is_read() -> None:
    verdict = judged([0.9] * 3, FIGURE, seeds=3, obstacle="a subset of CIFAR-10")
    assert verdict.phrase == "not comparable, because a subset of CIFAR-10"
    assert judged([0.9] * 3, None, seeds=3, obstacle="").phrase == "the paper prints no figure for it"


def test_missing_seeds_leave_a_figure_undecided() -> None:
    verdict = judged([0.9, 0.9], FIGURE, seeds=3, obstacle="")
    assert verdict.phrase == "undetermined: 2 of 3 seeds have a value"


@pytest.mark.parametrize(
    ("count", "spread"), [(1, "one seed); p = 0.5"), (4, "4 seeds, from 0.95 to 0.95); p = 0.062")]
)
def test_fewer_than_five_seeds_decide_nothing(count: int, spread: str) -> None:
    verdict, (values, p) = judged([0.95] * count, FIGURE, seeds=count, obstacle=""), spread.split("); ")
    assert verdict.phrase == (
        f"undetermined: median 0.95 ({values}) against 0.9 (0.01) ± 0.02; {p}; fewer than 5 seeds cannot"
        " decide"
    )


def test_the_interval_is_that_of_students_t() -> None:
    """Of 1, 2, 3: the quantile for two degrees of freedom is 4.3027, the standard error 0.57735."""
    ends = interval([1.0, 2.0, 3.0])
    assert ends == pytest.approx((2 - 4.3026527 * 0.5773503, 2 + 4.3026527 * 0.5773503))
    assert interval([1.0]) is None
    assert interval([0.9, 0.9, 0.9]) is None


@pytest.mark.parametrize("value", [0.865, 0.885, 0.845, 0.905])
def test_the_ends_of_a_tolerance_belong_to_it_despite_rounding(value: float) -> None:
    """0.875 - 0.01 is not 0.865."""
    figure = StatedFigure(value=0.875, tolerance=abs(value - 0.875))
    assert judged([value] * 5, figure, seeds=5, obstacle="").outcome == "reproduced"


@pytest.mark.parametrize(
    ("winner", "expected"),
    [
        ("rotrnn", "reproduced: rotrnn is better; p = 0.01"),
        ("lru", "not reproduced: lru is better; p = 0.01"),
        (None, f"undetermined: {NONE}"),
    ],
)
def test_an_order_of_arms_is_judged_by_the_winner(winner: str | None, expected: str) -> None:
    assert ordered("rotrnn", "lru", measured(winner), seeds=5).phrase == expected


def test_an_order_without_a_difference_is_undetermined_and_says_what_would_have_been_found() -> None:
    """No difference between two arms is no evidence against a paper that prints one."""
    verdict = ordered("rotrnn", "lru", measured(None, 0.25), seeds=5)
    assert verdict.phrase == f"undetermined: {ENOUGH}"


@pytest.mark.parametrize(
    ("found", "here"),
    [
        (measured("rotrnn"), "rotrnn is better; p = 0.01"),
        (measured("lru"), "lru is better; p = 0.01"),
        (measured(None, 0.25), ENOUGH),
    ],
)
def test_an_order_of_other_arms_than_the_papers_is_found_and_not_judged(found: Ordering, here: str) -> None:
    verdict = ordered("rotrnn", "lru", found, seeds=5, obstacle="depth 2 instead of 6", size=SIZE)
    assert verdict.phrase == f"not comparable, because depth 2 instead of 6. Here, {SIZE}: {here}"
    waiting = ordered(
        "rotrnn", "lru", found, seeds=5, lack="0 seeds of lru", obstacle="other data", size=SIZE
    )
    assert waiting.phrase == "not comparable, because 0 seeds of lru; other data"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.98, 0.99, 1.0, 0.97, 0.96), "confirmed"),
        ((0.5, 0.51, 0.52, 0.6, 0.7), "refuted"),
        ((0.99, 0.98, 0.5, 0.97, 0.96), "undetermined"),
        ((0.9, 0.99, 0.98), "undetermined"),
        ((0.99,), "undetermined"),
        ((1.0, 1.0, 1.0, 1.0, 1.0), "confirmed"),
        ((0.5, 0.5, 0.5, 0.5, 0.5), "refuted"),
    ],
)
def test_a_hypothesis_is_tested_by_counts_of_seeds(values: tuple[float, ...], expected: Answer) -> None:
    """Five equal seeds decide as five unequal ones do: of trainings of which half fail, 3 % would do this."""
    verdict = answered(values, StatedFigure(at_least=0.9), seeds=len(values), size=SIZE)
    assert verdict.outcome == expected
    assert verdict.phrase.endswith(SIZE)


def test_a_hypothesis_is_not_confirmed_by_the_luck_of_its_test_examples() -> None:
    """Five seeds agree, and another thousand examples may say otherwise."""
    values, bound = (0.906, 0.907, 0.908, 0.909, 0.91), StatedFigure(at_least=0.9)
    seeds_alone = answered(values, bound, seeds=5, size="at a size")
    both = answered(values, bound, seeds=5, size="at a size", noise=Variance(3e-5, 999))
    unknown = answered(values, bound, seeds=5, size="at a size", noise=None)
    assert [each.outcome for each in (seeds_alone, both, unknown)] == ["confirmed", *["undetermined"] * 2]
    assert "the noise of test examples" in both.reason
    assert "the scores of the test examples are not recorded" in unknown.reason


def test_a_hypothesis_about_an_arm_that_cannot_run_is_not_established() -> None:
    bound = StatedFigure(at_most=0.9)
    verdict = answered([], bound, seeds=3, size=SIZE, lack="the data of text are missing")
    assert verdict.phrase == "undetermined: the data of text are missing"
    assert answered([0.1], None, seeds=1, size=SIZE, lack="").outcome is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (measured("rotrnn"), f"confirmed: rotrnn is better {SIZE}; p = 0.01"),
        (measured("lru"), f"refuted: lru is better {SIZE}; p = 0.01"),
        (measured(None, 0.25), f"undetermined: {ENOUGH}, {SIZE}"),
    ],
)
def test_a_supposed_order_is_tested_at_its_size(found: Ordering, expected: str) -> None:
    assert answered_order("rotrnn", "lru", found, seeds=5, size=SIZE, lack="").phrase == expected
    assert (
        answered_order("rotrnn", "lru", found, seeds=5, size=SIZE, lack="no seeds").outcome == "undetermined"
    )


def test_a_correction_turns_a_verdict_that_stands_alone_into_an_open_one() -> None:
    values, bound, found = [0.95] * 5, StatedFigure(at_least=0.9), measured("rotrnn", 0.25)
    many = Corrected(0.031, 0.25, 8)
    assert answered(values, bound, seeds=5, size=SIZE).outcome == "confirmed"
    assert answered(values, bound, seeds=5, size=SIZE, corrected=many).phrase == (
        "undetermined: median 0.95 (5 seeds, from 0.95 to 0.95) against at least 0.9; p = 0.031, 0.25"
        f" corrected for 8 comparisons; fewer than 8 seeds cannot decide, {SIZE}"
    )
    order = ordered("rotrnn", "lru", found, seeds=5, corrected=Corrected(0.01, 0.08, 8))
    assert order.phrase == (
        "undetermined: no difference is established, p = 0.01, 0.08 corrected for 8 comparisons; fewer than 6"
        " seeds of each cannot decide"
    )
    assert ordered("rotrnn", "lru", found, seeds=6, corrected=Corrected(0.01, 0.08, 8)).phrase.endswith(
        "corrected for 8 comparisons; a difference of 0.25 would be, in 80 % of cases"
    )
