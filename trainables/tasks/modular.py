"""Modular arithmetic: the value of an expression of digits and operators, modulo m.

Tokens are the digits 0 to m - 1 as 1 to m, then + - * ( ) and =; 0 is padding. An expression ends with =,
where its value is asked for.

- Without brackets: digits and operators in turn, all uniform, with the usual precedence of *.
- With brackets: expressions of n tokens by the published recursion: a digit (n = 1), -d, (d), (-d), and from
  five tokens on (left operator right) with a uniform length of the left part.

Source: Deletang et al. 2023, "Neural Networks and the Chomsky Hierarchy", appendix A and its code; Grazzi et
al. 2025 (arXiv 2411.12537), section 5.1: m = 5, lengths 3 to 40 in training, 40 to 256 in test.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from trainables.data.task import IGNORED, Requirement
from trainables.errors import Refusal
from trainables.settings import Option
from trainables.tasks.lengths import OPTIONS, LengthTask

SYMBOLS = "+-*()="
"""Tokens after the digits, in their order."""

_SHORTEST = 2
"""Length of the shortest expression, a digit and =."""

_SHORTEST_PAIR = 5
"""Length of (a + b), the shortest expression with brackets and two digits."""


class Modular(LengthTask):
    """Random expressions; the value is asked for at the end, or after every digit."""

    name = "modular"
    title = "Modular arithmetic: the value of an expression, with or without brackets; 5 classes"
    options: ClassVar[Mapping[str, Option]] = {
        **OPTIONS,
        "modulus": Option(5, "m: digits are 0 to m - 1, and so is the value.", at_least=2),
        "operators": Option("+-*", "The operators, uniform.", ("+", "+-", "+-*")),
        "brackets": Option(default=False, summary="Whether expressions have brackets."),
    }
    published: ClassVar[Mapping[str, Any]] = {
        "length": 40,
        "min_length": 3,
        "answer": "end",
        "modulus": 5,
        "operators": "+-*",
    }

    def validate(self, options: Mapping[str, Any]) -> None:
        """Refuse lengths that no expression has, and values by step for expressions with brackets."""
        super().validate(options)
        where = f"task {self.name}: options"
        if options["min_length"] < _SHORTEST:
            must = f"must be at least {_SHORTEST}: a digit and ="
            raise Refusal(f"{where}.min_length", must, str(options["min_length"]), "Give a larger one.")
        if options["brackets"] and options["answer"] == "steps":
            must = "must be `end` with brackets: a part of such an expression has no value"
            raise Refusal(f"{where}.answer", must, "steps", "Set brackets: false, or answer: end.")

    def phrase(self, options: Mapping[str, Any]) -> str:
        """Return a description of the generated data."""
        kind = "with" if options["brackets"] else "without"
        operators = " ".join(options["operators"])
        return f"arithmetic modulo {options['modulus']} with {operators}, {kind} brackets"

    def sizes(self, options: Mapping[str, Any]) -> tuple[int, int]:
        """Return the numbers of tokens (padding, digits, symbols) and of classes (digits)."""
        return 1 + options["modulus"] + len(SYMBOLS), options["modulus"]

    def requires(self, options: Mapping[str, Any]) -> Requirement:
        """Return the requirement: memory of the whole length, and order unless there are only sums."""
        return Requirement(options["length"] - 1, order=options["brackets"] or options["operators"] != "+")

    def draw(
        self, options: Mapping[str, Any], rng: np.random.Generator, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw expressions; without brackets, every digit and the = have a value."""
        drawn = _bracketed if options["brackets"] else _flat
        return drawn(rng, lengths, options["modulus"], options["operators"])


def token(symbol: str, modulus: int) -> int:
    """Return the token of one of `SYMBOLS`."""
    return 1 + modulus + SYMBOLS.index(symbol)


def _flat(
    rng: np.random.Generator, lengths: np.ndarray, modulus: int, operators: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw expressions without brackets, of even lengths: = follows an odd number of tokens."""
    even = (lengths + 1) // 2 * 2
    true = np.where(even > lengths.max(), even - 2, even)
    rows, longest = len(true), int(true.max())
    digits = rng.integers(modulus, size=(rows, longest // 2))
    chosen = rng.integers(len(operators), size=digits.shape)
    tokens = np.empty((rows, longest), np.int64)
    tokens[:, ::2] = digits + 1
    tokens[:, 1::2] = np.array([token(symbol, modulus) for symbol in operators])[chosen]
    values = np.full(tokens.shape, IGNORED, np.int32)
    values[:, ::2] = _values(digits, chosen, operators, modulus)
    row = np.arange(rows)
    tokens[row, true - 1] = token("=", modulus)
    values[row, true - 1] = values[row, true - 2]
    inside = np.arange(longest) < true[:, None]
    return np.where(inside, tokens, 0), true, np.where(inside, values, IGNORED)


def _values(digits: np.ndarray, chosen: np.ndarray, operators: str, modulus: int) -> np.ndarray:
    """Return the value after each digit (n, k): the sum of the finished products plus the last product.

    Args:
        digits: (n, k).
        chosen: (n, k) numbers of the operators that follow them.
        operators: Symbols of the operators.
        modulus: m.
    """
    values = np.empty_like(digits)
    total, last = np.zeros(len(digits), np.int64), digits[:, 0]
    values[:, 0] = last
    symbols = np.array(list(operators))[chosen]
    for place in range(1, digits.shape[1]):
        before, digit = symbols[:, place - 1], digits[:, place]
        is_product = before == "*"
        total = np.where(is_product, total, (total + last) % modulus)
        signed = np.where(before == "-", -digit, digit)
        last = np.where(is_product, last * digit, signed) % modulus
        values[:, place] = (total + last) % modulus
    return values


def _bracketed(
    rng: np.random.Generator, lengths: np.ndarray, modulus: int, operators: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw expressions with brackets, which have a value at = only."""
    source = random.Random(int(rng.integers(2**63)))  # faster than NumPy for one number at a time
    tokens = np.zeros((len(lengths), int(lengths.max())), np.int64)
    values = np.full(tokens.shape, IGNORED, np.int32)
    for row, length in enumerate(lengths.tolist()):
        text: list[str] = []
        value = _expression(source, length - 1, modulus, operators, text)
        numbers = [int(part) + 1 if part.isdecimal() else token(part, modulus) for part in (*text, "=")]
        tokens[row, :length] = numbers
        values[row, length - 1] = value
    return tokens, lengths, values


def _expression(source: random.Random, length: int, modulus: int, operators: str, text: list[str]) -> int:
    """Append an expression of some tokens to a text; return its value."""
    if length < _SHORTEST_PAIR:
        digit, is_negative = source.randrange(modulus), length in (2, 4)
        parts = ["-", str(digit)] if is_negative else [str(digit)]
        text += ["(", *parts, ")"] if length > len(parts) else parts
        return -digit % modulus if is_negative else digit
    left_length = source.randrange(1, length - 3)
    text.append("(")
    left = _expression(source, left_length, modulus, operators, text)
    operator = source.choice(operators)
    text.append(operator)
    right = _expression(source, length - left_length - 3, modulus, operators, text)
    text.append(")")
    if operator == "*":
        return left * right % modulus
    return (left + right if operator == "+" else left - right) % modulus
