"""Distributions of single hyperparameters, their conditions, and what every draw of a space has in common."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["uniform", "log_uniform", "int", "log_int", "choice"]
Value = str | int | float | bool

MOST_CHOICES = 1_000
KINDS: tuple[Kind, ...] = ("uniform", "log_uniform", "int", "log_int", "choice")


class UnsoundError(ValueError):
    """Raised for a distribution that cannot be drawn from, with what must hold and what would be right."""

    def __init__(self, must: str, remedy: str) -> None:
        super().__init__(must, remedy)
        self.must, self.remedy = must, remedy


@dataclass(frozen=True)
class Distribution:
    """What one hyperparameter is drawn from.

    Attributes:
        kind: uniform and log_uniform are real numbers, int and log_int whole ones, choice any.
        low: smallest value, inclusive; None for a choice.
        high: largest value, inclusive; None for a choice.
        step: distance between the values of a uniform or int range; None for a continuous one.
        choices: the values of a choice, all of one type.
        when: other hyperparameters and the values under which this one is drawn at all.
    """

    kind: Kind
    low: float | int | None = None
    high: float | int | None = None
    step: float | int | None = None
    choices: tuple[Value, ...] = ()
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def ends(self) -> tuple[Any, Any]:
        """Return the smallest and the largest value that can be drawn."""
        if self.kind == "choice":
            return min(self.choices), max(self.choices)
        return self.low, self.high

    def count(self) -> int | None:
        """Return how many values can be drawn, or None for a continuous range."""
        if self.kind == "choice":
            return len(self.choices)
        low, high = self._bounds()
        if low == high:
            return 1
        if self.kind in {"int", "log_int"}:
            return (int(high) - int(low)) // int(self.step or 1) + 1
        return None if self.step is None else round((high - low) / self.step) + 1

    def values(self) -> tuple[Value, ...]:
        """Return every value that can be drawn; only for distributions with a `count`."""
        if self.kind == "choice":
            return self.choices
        low, high = self._bounds()
        count = self.count()
        assert count is not None, "a continuous range has no list of values"
        if self.kind in {"int", "log_int"}:
            return tuple(int(low) + k * int(self.step or 1) for k in range(count))
        return tuple(min(low + k * (self.step or 0.0), high) for k in range(count))

    def holds(self, value: Any) -> bool:
        """Tell whether `value` can be drawn."""
        if self.kind == "choice":
            return any(value == choice and _flag(value) == _flag(choice) for choice in self.choices)
        if _flag(value) or not isinstance(value, int | float):
            return False
        low, high = self._bounds()
        if not low <= value <= high:
            return False
        step = self.step or (1 if self.kind in {"int", "log_int"} else None)
        return step is None or _divides(step, value - low)

    def _bounds(self) -> tuple[float, float]:
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high

    def document(self) -> dict[str, Any]:
        """Return the entry of the file that reads as this distribution."""
        entry: dict[str, Any] = {self.kind: list(self.choices) or [self.low, self.high]}
        if self.step is not None:
            entry["step"] = self.step
        if self.when:
            entry["when"] = {name: list(values) for name, values in sorted(self.when.items())}
        return entry


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _divides(step: float, distance: float) -> bool:
    steps = distance / step
    return math.isclose(steps, round(steps), rel_tol=1e-9, abs_tol=1e-9)


def ranged(kind: Kind, low: float | int, high: float | int, step: float | None) -> Distribution:
    """Return the distribution of a range.

    Raises:
        UnsoundError: low > high, a logarithm of zero, or a step that does not divide the range.
    """
    if low > high:
        raise UnsoundError("low <= high must hold", f"Write [{high:g}, {low:g}].")
    if kind.startswith("log_") and low <= 0:
        raise UnsoundError(
            "low > 0 must hold for a logarithm", f"Raise it, or write {kind.removeprefix('log_')}."
        )
    if step is None:
        return Distribution(kind, low, high)
    if kind.startswith("log_"):
        raise UnsoundError("a logarithmic range has no step", "Leave the step out.")
    if kind == "int" and step != int(step):
        raise UnsoundError("the step of int must be a whole number", f"Write step: {max(1, round(step))}.")
    _check_step(low, high, step)
    return Distribution(kind, low, high, int(step) if kind == "int" else step)


def _check_step(low: float, high: float, step: float) -> None:
    if step > high - low:
        raise UnsoundError("step <= high - low must hold", f"Write a step of at most {high - low:g}.")
    count = (high - low) / step
    if count > MOST_CHOICES:
        raise UnsoundError(
            f"at most {MOST_CHOICES:,} steps between low and high", "Leave the step out or widen it."
        )
    if not _divides(step, high - low):
        raise UnsoundError(
            "high must be low plus a whole number of steps", f"Write high {low + math.floor(count) * step:g}."
        )


def chosen(values: list[Any]) -> Distribution:
    """Return the distribution of a choice; whole and real numbers together become real ones.

    Raises:
        UnsoundError: the list is empty, too long, nested, mixed or has duplicates.
    """
    if not values:
        raise UnsoundError("a choice must have at least one value", "Write choice: [a, b].")
    if len(values) > MOST_CHOICES:
        raise UnsoundError(f"a choice has at most {MOST_CHOICES:,} values", "Write a range instead.")
    if any(not isinstance(value, str | int | float | bool) for value in values):
        raise UnsoundError("a choice is made of numbers, words or flags", "Write single values.")
    kinds = {"flags" if _flag(v) else "words" if isinstance(v, str) else "numbers" for v in values}
    if len(kinds) > 1:
        raise UnsoundError(
            "the values of a choice must be of one type", f"These are {' and '.join(sorted(kinds))}."
        )
    if any(isinstance(value, float) for value in values):
        values = [float(value) for value in values]
    if len(set(values)) < len(values):
        raise UnsoundError("the values of a choice must differ", "Keep each once.")
    return Distribution("choice", choices=tuple(values))


def ordered(search: Mapping[str, Distribution]) -> dict[str, Distribution]:
    """Return the space with every hyperparameter after those its condition names, else by name.

    The order is a property of the space alone: a sampler draws the same from a file and from its record.

    Raises:
        UnsoundError: conditions run in a circle.
    """
    done: dict[str, Distribution] = {}
    while len(done) < len(search):
        ready = [name for name in sorted(search) if name not in done and set(search[name].when) <= set(done)]
        if not ready:
            raise UnsoundError(
                "conditions must not run in a circle", "Search one of them without a condition."
            )
        done |= {name: search[name] for name in ready}
    return done


def active(distribution: Distribution, drawn: Mapping[str, Any]) -> bool:
    """Tell whether a hyperparameter is drawn, given those drawn before it."""
    return all(name in drawn and drawn[name] in values for name, values in distribution.when.items())


def combinations(search: Mapping[str, Distribution], names: frozenset[str]) -> Iterator[dict[str, Value]]:
    """Yield every assignment of the searched ones among `names` and of what their conditions name.

    Args:
        search: an ordered space.
        names: hyperparameters with finitely many values.
    """
    wanted = _with_parents(search, names)
    domains = [search[name].values() for name in wanted]
    seen: set[tuple[tuple[str, Value], ...]] = set()
    for values in itertools.product(*domains):
        drawn: dict[str, Value] = {}
        for name, value in zip(wanted, values, strict=True):
            if active(search[name], drawn):
                drawn[name] = value
        key = tuple(drawn.items())
        if key not in seen:
            seen.add(key)
            yield drawn


def size(search: Mapping[str, Distribution], names: frozenset[str]) -> int:
    """Return how many assignments `combinations` would go through."""
    return math.prod(search[name].count() or 0 for name in _with_parents(search, names))


def _with_parents(search: Mapping[str, Distribution], names: frozenset[str]) -> list[str]:
    wanted = {name for name in names if name in search}
    while parents := {parent for name in wanted for parent in search[name].when} - wanted:
        wanted |= parents
    return [name for name in search if name in wanted]
