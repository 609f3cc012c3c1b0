"""The notation of numbers in search-space files."""

from __future__ import annotations

import math

import pytest

from orchestrator.config.yaml_reader import NotFiniteError, parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("+3", 3),
        ("50_000", 50_000),
        ("1e-4", 1e-4),
        ("1E3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("0", 0),
        ("0.0", 0.0),
        ("pi", math.pi),
        ("-pi", -math.pi),
        ("pi/10", math.pi / 10),
        ("2*pi", 2 * math.pi),
        ("2 * pi / 3", 2 * math.pi / 3),
        ("1/8", 0.125),
        ("1/2/2", 0.25),
    ],
)
def test_reads(text: str, value: float) -> None:
    """Numbers of the grammar have the expected value, and whole numbers stay whole."""
    parsed = parse_number(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    "text",
    ["", "pi pi", "2pi", "pi*", "*2", "1//2", "2**3", "(1)", "1+1", "0x10", "012", "1__0", "1_", "e", "1e",
     "nan", "inf", "1,5", "2024-01-01", "12:30", "--1", "1 2", "pi/x", "__import__('os')", "9" * 65],
)  # fmt: skip
def test_leaves_other_text_alone(text: str) -> None:
    """Text outside the grammar is not a number, and is not evaluated."""
    assert parse_number(text) is None


@pytest.mark.parametrize("text", [".inf", "-.INF", ".nan", "1/0", "1e400", "1e308*10", str(2**63), "pi/0.0"])
def test_refuses_numbers_that_are_not_finite(text: str) -> None:
    """A number without a finite 64-bit value is an error, not text."""
    with pytest.raises(NotFiniteError):
        parse_number(text)
