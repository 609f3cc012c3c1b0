"""Relations between hyperparameters, such as `d_state >= 2 * heads`, which every trial must satisfy.

A relation compares two or more sums by <, <=, >, >=, == or !=. A sum has terms joined by + and -, a term has
factors joined by * and /, and a factor is a name, a number of the file format without a sign (`1e-3`,
`50_000`, `pi`), or a sum in brackets. A text is parsed, never evaluated.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from orchestrator.config.yaml_reader import NotFiniteError, parse_number
from orchestrator.placeholders import NAME

Sum: TypeAlias = "str | float | int | tuple[str, Sum, Sum]"
"""A name, a number, or an operator with its operands."""

LONGEST = 250
"""Largest number of characters of a relation."""

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_COMBINE: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>[0-9.][0-9_.]*(?:[eE][-+]?[0-9]+)?)|(?P<name>{NAME})"
    r"|(?P<compare><=|>=|==|!=|<|>)|(?P<combine>[-+*/])|(?P<bracket>[()]))"
)
_EXAMPLE = 'For example "d_state >= 2 * heads".'


class RelationError(ValueError):
    """A text that is not a relation.

    Args:
        must: Requirement.
        remedy: Correction to suggest.
    """

    def __init__(self, must: str, remedy: str = _EXAMPLE) -> None:
        super().__init__(must, remedy)
        self.must, self.remedy = must, remedy


@dataclass(frozen=True)
class Relation:
    """A chain of comparisons, all of which must hold.

    Attributes:
        text: The relation as in the file, with single spaces.
        sides: Sums that are compared, from left to right.
        comparisons: Operators between neighbouring sides.
    """

    text: str
    sides: tuple[Sum, ...]
    comparisons: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """Return the names in the relation."""
        return frozenset(name for side in self.sides for name in _names(side))

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return True if the relation holds or does not apply.

        The relation applies if each of its names has a number. A division by zero violates it.
        """
        if not all(is_number(values.get(name)) for name in self.names):
            return True
        try:
            results = [_value(side, values) for side in self.sides]
        except (ZeroDivisionError, OverflowError):
            return False
        pairs = zip(self.comparisons, results, results[1:], strict=False)
        return all(_COMPARE[comparison](one, other) for comparison, one, other in pairs)

    def states(self, low: str, high: str) -> bool:
        """Return True if the relation is `low < high`, or `high > low`, for two names."""
        return (self.sides, self.comparisons) in (((low, high), ("<",)), ((high, low), (">",)))

    def shown(self, values: Mapping[str, Any]) -> str:
        """Format the value of each name, in the order of the relation."""
        names = dict.fromkeys(name for side in self.sides for name in _names(side))
        return ", ".join(f"{name} {_short(values.get(name))}" for name in names)


def read_relation(text: str) -> Relation:
    """Return the relation that a text describes.

    Raises:
        RelationError: The text is not a relation.
    """
    if len(text) > LONGEST:
        raise RelationError(f"must be at most {LONGEST} characters", "Write several relations.")
    tokens = list(_tokens(text))
    reader = _Reader(list(tokens))
    sides, comparisons = [reader.sum()], []
    while (kind := reader.kind) == "compare":
        comparisons.append(reader.take())
        sides.append(reader.sum())
    if kind or not comparisons:
        raise RelationError("must compare sums by <, <=, >, >=, == or !=")
    spaced = " ".join(part for _, part in tokens).replace("( ", "(").replace(" )", ")")
    relation = Relation(spaced, tuple(sides), tuple(comparisons))
    if not relation.names:
        raise RelationError("must name a hyperparameter")
    return relation


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise RelationError("must consist of names, numbers, brackets, + - * / and comparisons")
        kind = str(match.lastgroup)
        yield kind, match[kind]
        position = match.end()


class _Reader:
    """Reads the tokens of a relation from left to right."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens

    @property
    def kind(self) -> str:
        """Return the kind of the next token, or '' at the end."""
        return self._tokens[0][0] if self._tokens else ""

    def take(self) -> str:
        """Remove and return the text of the next token."""
        return self._tokens.pop(0)[1]

    def sum(self) -> Sum:
        """Read terms joined by + and -, perhaps with a sign before the first one."""
        found: Sum = 0 if self._next_is("+-") else self._term()
        while self._next_is("+-"):
            found = (self.take(), found, self._term())
        return found

    def _term(self) -> Sum:
        found = self._factor()
        while self._next_is("*/"):
            found = (self.take(), found, self._factor())
        return found

    def _factor(self) -> Sum:
        kind, text = self.kind, self.take() if self._tokens else ""
        if kind == "name":
            return parse_number(text) or text  # `pi` is a number
        if kind == "number":
            return _number(text)
        if text == "(":
            found = self.sum()
            if self._tokens and self.take() == ")":
                return found
            raise RelationError("must close each bracket")
        raise RelationError("must have a name or a number on both sides of each operator")

    def _next_is(self, signs: str) -> bool:
        return self.kind == "combine" and self._tokens[0][1] in signs


def _number(text: str) -> float | int:
    try:
        number = parse_number(text)
    except NotFiniteError:
        number = None
    if number is None:
        raise RelationError(f"must have numbers such as 1e-3 or 50_000, not {text}")
    return number


def _names(side: Sum) -> Iterator[str]:
    if isinstance(side, str):
        yield side
    elif isinstance(side, tuple):
        yield from _names(side[1])
        yield from _names(side[2])


def _value(side: Sum, values: Mapping[str, Any]) -> Any:
    if isinstance(side, str):
        return values[side]
    if isinstance(side, tuple):
        sign, one, other = side
        return _COMBINE[sign](_value(one, values), _value(other, values))
    return side


def is_number(value: Any) -> bool:
    """Return True for a number that is not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
