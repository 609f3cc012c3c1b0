"""The numbers of a search-space file: `1e-4`, `50_000`, `pi/10`, `2*pi`, `1/8`; parsed, never evaluated.

A number is an optional sign and factors joined by `*` and `/`; a factor is `pi` or a decimal number.
"""

from __future__ import annotations

import math
import re

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)")
_DECIMAL = r"(?:[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_FACTOR = re.compile(rf"\s*(pi|{_DECIMAL})\s*")
_ZERO_LED = re.compile(r"0[0-9_]+")
_LONGEST = 64


class NotFiniteError(ValueError):
    """Raised for text that is a number by its form but has no finite 64-bit value."""


def parse_number(text: str) -> int | float | None:
    """Return the number that `text` spells, or None when it spells none.

    Raises:
        NotFiniteError: the value overflows, or a divisor is zero.
    """
    text = text.strip()
    if text.lower().lstrip("+-") in {".inf", ".nan"}:
        raise NotFiniteError(text)
    if len(text) > _LONGEST:
        return None
    if _INTEGER.fullmatch(text):
        return _bounded(int(text))
    return _quotient(text)


def _quotient(text: str) -> float | None:
    sign = -1.0 if text.startswith("-") else 1.0
    position = 1 if text[:1] in {"-", "+"} else 0
    value, operator = sign, "*"
    while match := _FACTOR.match(text, position):
        factor = _factor(match[1])
        if factor is None:
            return None
        value = _apply(value, operator, factor, text)
        position = match.end()
        if position == len(text):
            return value
        operator = text[position]
        if operator not in "*/":
            return None
        position += 1
    return None


def _factor(text: str) -> float | None:
    if text == "pi":
        return math.pi
    # 012 is ten in YAML 1.1 and twelve in YAML 1.2: neither is taken for granted.
    return None if _ZERO_LED.fullmatch(text) else float(text)


def _apply(value: float, operator: str, factor: float, text: str) -> float:
    if operator == "/" and factor == 0:
        raise NotFiniteError(text)
    result = value * factor if operator == "*" else value / factor
    if not math.isfinite(result):
        raise NotFiniteError(text)
    return result


def _bounded(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise NotFiniteError(str(value))
    return value
