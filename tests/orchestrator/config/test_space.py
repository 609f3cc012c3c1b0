"""Distributions: which are valid, which values they hold, and conditions between them."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.space import (
    Distribution,
    DistributionError,
    Kind,
    active,
    chosen,
    combinations,
    normal,
    ordered,
    ranged,
)


@pytest.mark.parametrize(
    ("arguments", "must"),
    [
        (("uniform", 1.0, 0.0, None), "low <= high"),
        (("log_uniform", 0.0, 1.0, None), "low > 0"),
        (("log_int", -1, 8, None), "low > 0"),
        (("log_uniform", 1.0, 2.0, 0.5), "no step"),
        (("power_of_two", 16, 512, 2), "no step"),
        (("power_of_two", 16, 500, None), "powers of two"),
        (("power_of_two", 0, 8, None), "powers of two"),
        (("log_int", 16, 256, 1.5), "whole number"),
        (("int", 0, 2**53 + 2, None), "at most 2\\^53"),
        (("log_int", 1, 2**60, None), "at most 2\\^53"),
        (("int", 1, 8, 0.5), "whole number"),
        (("uniform", 0.0, 1.0, 2.0), "step <= high - low"),
        (("uniform", 0.0, 1.0, 0.3), "whole number of steps"),
        (("int", 1, 8, 2), "whole number of steps"),
        (("uniform", 0.0, 1.0, 1e-6), "steps between"),
        (("uniform", 0.0, 1.0, 5e-324), "steps between"),
        (("uniform", 1e17, 1e17 + 64, 4.0), "must change the ends"),
        (("uniform", -1e308, 1e308, None), "must be a finite number"),
        (("uniform", -1e308, 1e308, 1e306), "must be a finite number"),
    ],
)
def test_invalid_ranges(arguments: tuple, must: str) -> None:
    """A range from which no value could be drawn, or with a bad step, is refused."""
    with pytest.raises(DistributionError, match=must):
        ranged(*arguments)


@pytest.mark.parametrize(
    ("values", "must"),
    [
        ([], "at least one"),
        ([1, 1], "differ"),
        ([1, 1.0], "differ"),
        ([None, None], "differ"),
        ([[1, 2], [1.0, 2]], "differ"),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], "differ"),
        (list(range(1001)), "at most 1,000"),
    ],
)
def test_invalid_choices(values: list, must: str) -> None:
    """An empty or endless choice, or one with duplicates, is refused."""
    with pytest.raises(DistributionError, match=must):
        chosen(values)


def test_low_may_equal_high() -> None:
    """A constant is a legal range."""
    for kind in ("uniform", "log_uniform", "int", "log_int"):
        constant = ranged(kind, 4, 4, None)
        assert constant.values() == (4,)
        assert constant.holds(4)
        assert not constant.holds(5)


ANYTHING: tuple = (None, 8, 0.5, True, False, "8", "relu", 1, [64, 64], [1, None], {"a": [1]}, {})


def test_a_choice_keeps_the_types_of_its_values() -> None:
    """Equal numbers are one value; 1 and true, or 8 and the word 8, are two."""
    choice = chosen(ANYTHING)
    assert choice.count() == len(ANYTHING)
    for index, value in enumerate(ANYTHING):
        assert choice.index(value) == index
        assert type(choice.value(index)) is type(value)
    assert type(choice.typed(8.0)) is int
    assert choice.index([64.0, 64]) == ANYTHING.index([64, 64])
    assert not any(choice.holds(value) for value in ("true", 0, [64], {"a": [2]}, [True, None]))


@pytest.mark.parametrize("labels", [["a"], ["a", "a"], ["a", " "]])
def test_each_value_has_one_label(labels: list) -> None:
    with pytest.raises(DistributionError, match="one label for each value"):
        chosen([[1], [2]], labels)


def test_a_label_stands_for_its_value() -> None:
    choice = chosen([[64, 64], None], ["small", "none"])
    assert choice.values() == ("small", "none")
    assert [choice.meaning(label) for label in choice.values()] == [[64, 64], None]


def test_powers_of_two() -> None:
    powers = ranged("power_of_two", 16, 512, None)
    assert powers.values() == (16, 32, 64, 128, 256, 512)
    assert [powers.index(value) for value in powers.values()] == list(range(6))
    assert [powers.nearest(value) for value in (0, 20, 24, 10_000)] == [16, 16, 32, 512]
    assert not powers.holds(48)
    assert powers.holds(64.0)


def test_steps_on_a_logarithmic_scale() -> None:
    """Each value has the share of the logarithmic range that rounds to it."""
    rng, range_by_steps = random.Random(0), ranged("log_int", 10, 100, 10)
    assert range_by_steps.values() == tuple(range(10, 101, 10))
    drawn = Counter(range_by_steps.draw(rng) for _ in range(20_000))
    for value, count in drawn.items():
        expected = math.log((value + 5) / (value - 5)) / math.log(105 / 5)
        assert count / 20_000 == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "must"),
    [
        (("normal", 0, 0), "above 0"),
        (("normal", 1e17, 1), "large enough"),
        (("normal", 0, 1e308), "finite numbers"),
        (("log_normal", 0, 200), "finite numbers"),
    ],
)
def test_invalid_normal_distributions(arguments: tuple, must: str) -> None:
    with pytest.raises(DistributionError, match=must):
        normal(*arguments)


def test_draws_of_a_normal_distribution() -> None:
    rng, standard = random.Random(0), normal("normal", 3, 2)
    drawn = [standard.draw(rng) for _ in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(3, abs=0.05)
    assert statistics.stdev(drawn) == pytest.approx(2, abs=0.05)
    logarithms = [math.log(normal("log_normal", -7, 1).draw(rng)) for _ in range(20_000)]
    assert statistics.fmean(logarithms) == pytest.approx(-7, abs=0.05)


@given(
    kind=st.sampled_from(["normal", "log_normal"]),
    mean=st.floats(-50, 50),
    deviation=st.floats(1e-3, 20),
    number=st.integers(0, 2**30 - 1),
)
def test_a_value_of_a_normal_distribution_has_one_quantile(
    kind: Kind, mean: float, deviation: float, number: int
) -> None:
    distribution = normal(kind, mean, deviation)
    assert distribution.holds(distribution.at_quantile(number))
    assert distribution.quantile(distribution.at_quantile(number)) == number


@given(value=st.floats(-1e6, 1e6), factor=st.floats(0.1, 10))
def test_the_nearest_value_can_be_drawn(value: float, factor: float) -> None:
    for distribution in (
        ranged("power_of_two", 1, 1024, None),
        ranged("log_int", 5, 105, 10),
        ranged("uniform", 0.0, math.pi, math.pi / 4),
        normal("normal", 0, 1),
    ):
        assert distribution.holds(distribution.nearest(value * factor))


def test_values_of_finite_distributions() -> None:
    """Finite distributions list their values; their last one is exactly `high`."""
    assert ranged("int", 2, 8, 3).values() == (2, 5, 8)
    assert ranged("uniform", 0.1, 0.7, 0.2).values() == pytest.approx((0.1, 0.3, 0.5, 0.7))
    assert ranged("uniform", 0.1, 0.7, 0.2).values()[-1] == 0.7
    assert ranged("uniform", 0.1, 0.7, None).count() is None
    assert ranged("log_int", 1, 1024, None).count() == 1024


@given(st.integers(-50, 50), st.integers(0, 100), st.integers(1, 7))
def test_every_listed_value_holds(low: int, steps: int, step: int) -> None:
    """A finite range holds exactly the values that it lists."""
    drawn = ranged("int", low, low + steps * step, step if steps else None)
    listed = set(drawn.values())
    assert len(listed) == drawn.count()
    assert {value for value in range(low - 5, low + steps * step + 6) if drawn.holds(value)} == listed


@pytest.mark.parametrize(
    "drawn",
    [
        ranged("int", 2, 8, 3),
        ranged("int", 4, 4, None),
        ranged("log_int", 1, 9, None),
        ranged("uniform", 0.1, 0.7, 0.2),
        chosen([3, 1, 2]),
    ],
    ids=lambda drawn: drawn.kind,
)
def test_each_value_has_its_index(drawn: Distribution) -> None:
    listed = drawn.values()
    assert [drawn.value(index) for index in range(len(listed))] == list(listed)
    assert [drawn.index(value) for value in listed] == list(range(len(listed)))


def test_holds_knows_types() -> None:
    """Flags and words are not numbers, and a whole distribution holds whole numbers only."""
    assert not ranged("uniform", 0.0, 1.0, None).holds(True)
    assert not ranged("uniform", 0.0, 1.0, None).holds("0.5")
    assert not ranged("int", 1, 8, None).holds(1.5)
    assert ranged("int", 1, 8, None).holds(2.0)
    assert not chosen([1, 2]).holds(True)
    assert not chosen([True, False]).holds(1)
    assert not chosen(["a"]).holds(["a"])


def test_order_puts_parents_first_whatever_the_order_in_the_file() -> None:
    """The order depends on the space alone."""
    a = chosen([1])
    b = Distribution("choice", choices=(1, 2), when={"z": (1,)})
    z = chosen([1, 2])
    for space in ({"b": b, "a": a, "z": z}, {"z": z, "a": a, "b": b}):
        assert list(ordered(space)) == ["a", "z", "b"]
    with pytest.raises(DistributionError, match="cycle"):
        ordered({"x": Distribution("choice", choices=(1,), when={"y": (1,)}),
                 "y": Distribution("choice", choices=(1,), when={"x": (1,)})})  # fmt: skip


def test_combinations_follow_conditions() -> None:
    """An assignment omits hyperparameters whose condition does not hold, and none is yielded twice."""
    space = ordered(
        {
            "layer": chosen(["a", "b"]),
            "heads": Distribution("choice", choices=(2, 4), when={"layer": ("a",)}),
            "rate": ranged("uniform", 0.0, 1.0, None),
        }
    )
    assert list(combinations(space, frozenset({"heads"}))) == [
        {"layer": "a", "heads": 2},
        {"layer": "a", "heads": 4},
        {"layer": "b"},
    ]
    assert active(space["heads"], {"layer": "a"})
    assert not active(space["heads"], {"layer": "b"})
    assert not active(space["heads"], {})
