"""Formats of numbers: one table of cases for the report and the page."""

from __future__ import annotations

import random

import pytest

from orchestrator.report import words

CASES = [
    (0.626, "0.6260", "0.626"),
    (0.87094, "0.8709", "0.8709"),
    (5.458199397036843e-05, "5.458e-5", "5.458e-5"),
    (1e-4, "1e-4", "1e-4"),
    (0.001, "0.001000", "0.001"),
    (99_999.6, "1e5", "1e5"),
    (12_345.6, "12346", "12346"),
    (100.0, "100.0", "100"),
    (-3.5, "-3.500", "-3.5"),
    (0.0, "0", "0"),
]
"""Values with their texts by `number` and `brief`."""

SETTINGS = [
    (1.0, "1"),
    (64, "64"),
    (200_000.0, "200000"),
    (200_000, "200000"),
    (3e-4, "3e-4"),
    (0.25, "0.25"),
    (True, "true"),
    (None, "null"),
    ("adamw", "adamw"),
]
"""Hyperparameters with their texts by `setting`."""


def values() -> list[float]:
    """Return 200 values: halves, powers of ten, numbers near the change of the format, and random ones."""
    draw = random.Random(0)
    edges = [0.1, 0.5, 1.0, 2.5, 1e-3, 9.9999e-4, 9.99996, 0.99995, 99_999.0, 99_999.6, 1e5, 10_000.5]
    edges += [5.458199397036843e-05, 8_123_500_000.0, 1e-300, 1e300, 1e21, 12_345.5, 0.0625, 3.125, 1234.5]
    found = [0.0, *edges, *(-edge for edge in edges)]
    return [*found, *(draw.uniform(-10, 10) * 10.0 ** draw.randrange(-8, 9) for _ in range(200 - len(found)))]


@pytest.mark.parametrize(("value", "number", "brief"), CASES)
def test_a_number_has_four_significant_digits(value: float, number: str, brief: str) -> None:
    assert (words.number(value), words.brief(value)) == (number, brief)


@pytest.mark.parametrize(("value", "text"), SETTINGS)
def test_a_hyperparameter_keeps_its_digits_if_it_is_whole(value: object, text: str) -> None:
    assert words.setting(value) == text


def test_a_missing_value_is_a_dash() -> None:
    assert words.number(None) == words.brief(None) == words.interval(None, 1.0) == "–"


def test_a_column_has_equal_decimals() -> None:
    assert words.numbers([0.626, 0.87094, 0.0123]) == ["0.6260", "0.8709", "0.0123"]
    assert words.numbers([0.62601, 0.62602]) == ["0.62601", "0.62602"]
    assert words.numbers([12.5, 0.5, 1e-5, None]) == ["12.50", "0.50", "1e-5", "–"]
    assert words.interval(0.9, 12.5) == "0.90 to 12.50"
