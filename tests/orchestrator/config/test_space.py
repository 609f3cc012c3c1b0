"""Distributions: which are valid, which values they hold, and conditions between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.space import (
    Distribution,
    DistributionError,
    active,
    chosen,
    combinations,
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
        ([True, 1], "one type"),
        ([1, "a"], "one type"),
        ([[1], [2]], "numbers, words or flags"),
        ([{"a": 1}], "numbers, words or flags"),
        ([None], "numbers, words or flags"),
        (list(range(1001)), "at most 1,000"),
        ([2**53 + 1, 0.5], "hold 53 bits"),
    ],
)
def test_invalid_choices(values: list, must: str) -> None:
    """An empty, duplicate, mixed, nested or endless choice is refused."""
    with pytest.raises(DistributionError, match=must):
        chosen(values)


def test_low_may_equal_high() -> None:
    """A constant is a legal range."""
    for kind in ("uniform", "log_uniform", "int", "log_int"):
        constant = ranged(kind, 4, 4, None)
        assert constant.values() == (4,)
        assert constant.holds(4)
        assert not constant.holds(5)


def test_whole_and_real_choices_become_real() -> None:
    """The values of a choice have one type: beside 2.5, 1 becomes 1.0."""
    assert chosen([1, 2.5]).choices == (1.0, 2.5)
    assert all(type(value) is float for value in chosen([1, 2.5]).choices)


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
