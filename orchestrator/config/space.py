"""Search space: a distribution for each hyperparameter, and conditions between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from orchestrator.config.document import Violation, flow, nearest, raise_all
from orchestrator.config.sections import SearchEntry

Kind = Literal["uniform", "log_uniform", "int", "log_int", "choice"]
Value = str | int | float | bool

MOST_CHOICES = 1_000
KINDS: tuple[Kind, ...] = ("uniform", "log_uniform", "int", "log_int", "choice")


class DistributionError(ValueError):
    """A distribution without values.

    Args:
        must: Requirement.
        remedy: Correction to suggest.
    """

    def __init__(self, must: str, remedy: str) -> None:
        super().__init__(must, remedy)
        self.must, self.remedy = must, remedy


@dataclass(frozen=True)
class Distribution:
    """Distribution and conditions of one hyperparameter.

    Attributes:
        kind: Uniform and log_uniform draw real numbers, int and log_int whole ones, choice a listed value.
        low: Smallest value, inclusive; None for a choice.
        high: Largest value, inclusive; None for a choice.
        step: Distance between the values of a uniform or int range; None for a continuous one.
        choices: Values of a choice, all of one type.
        when: Other hyperparameters, and the values of each under which this one is drawn.
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
        """Return the number of values, or None for a continuous range."""
        if self.kind == "choice":
            return len(self.choices)
        low, high = self._bounds()
        if low == high:
            return 1
        if self.kind in {"int", "log_int"}:
            return (int(high) - int(low)) // int(self.step or 1) + 1
        return None if self.step is None else round((high - low) / self.step) + 1

    def values(self) -> tuple[Value, ...]:
        """Return all values. The distribution must have a `count`."""
        count = self.count()
        assert count is not None, "a continuous range has no list of values"
        return tuple(self.value(index) for index in range(count))

    def value(self, index: int) -> Value:
        """Return the value with an index from 0. The distribution must have a `count`."""
        if self.kind == "choice":
            return self.choices[index]
        low, high = self._bounds()
        if self.kind in {"int", "log_int"}:
            return int(low) + index * int(self.step or 1)
        return min(low + index * (self.step or 0.0), high)

    def index(self, value: Any) -> int:
        """Return the index of a value, in a range the index of the nearest one, because steps are rounded."""
        if self.kind == "choice":
            return self.choices.index(value)
        low, _ = self._bounds()
        whole = self.kind in {"int", "log_int"}
        step = self.step or (1 if whole else None)
        count = self.count()
        assert count is not None, "a continuous range has no list of values"
        return 0 if step is None else min(max(round((value - low) / step), 0), count - 1)

    def holds(self, value: Any) -> bool:
        """Return True if `value` can be drawn."""
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
        """Return this distribution as an entry of the section `search`."""
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
        DistributionError: `low` > `high`, a logarithm of zero, or a step that does not divide the range.
    """
    if low > high:
        raise DistributionError("low <= high must hold", f"Write [{high:g}, {low:g}].")
    if not math.isfinite(float(high) - float(low)):
        raise DistributionError("high - low must be a finite number", f"Write [{low / 4:g}, {high / 4:g}].")
    if kind.startswith("log_") and low <= 0:
        raise DistributionError(
            "low > 0 must hold for a logarithm", f"Raise it, or write {kind.removeprefix('log_')}."
        )
    if step is None:
        return Distribution(kind, low, high)
    if kind.startswith("log_"):
        raise DistributionError("a logarithmic range has no step", "Leave the step out.")
    if kind == "int" and step != int(step):
        raise DistributionError(
            "the step of int must be a whole number", f"Write step: {max(1, round(step))}."
        )
    _check_step(low, high, step)
    return Distribution(kind, low, high, int(step) if kind == "int" else step)


def _check_step(low: float, high: float, step: float) -> None:
    if step > high - low:
        raise DistributionError("step <= high - low must hold", f"Write a step of at most {high - low:g}.")
    count = (high - low) / step
    if count > MOST_CHOICES:
        raise DistributionError(
            f"at most {MOST_CHOICES:,} steps between low and high", "Leave the step out or widen it."
        )
    if low + step == low or high - step == high:
        raise DistributionError("a step must change the ends of the range", "Leave the step out or widen it.")
    if not _divides(step, high - low):
        raise DistributionError(
            "high must be low plus a whole number of steps", f"Write high {low + math.floor(count) * step:g}."
        )


def chosen(values: list[Any]) -> Distribution:
    """Return the distribution of a choice. Mixed whole and real numbers become real numbers.

    Raises:
        DistributionError: The list is empty, too long, nested, mixed or has duplicates.
    """
    if not values:
        raise DistributionError("a choice must have at least one value", "Write choice: [a, b].")
    if len(values) > MOST_CHOICES:
        raise DistributionError(f"a choice has at most {MOST_CHOICES:,} values", "Write a range instead.")
    if any(not isinstance(value, str | int | float | bool) for value in values):
        raise DistributionError("a choice is made of numbers, words or flags", "Write single values.")
    kinds = {"flags" if _flag(v) else "words" if isinstance(v, str) else "numbers" for v in values}
    if len(kinds) > 1:
        raise DistributionError(
            "the values of a choice must be of one type", f"These are {' and '.join(sorted(kinds))}."
        )
    if any(isinstance(value, float) for value in values):
        if inexact := [value for value in values if float(value) != value]:
            must = "whole and real numbers together become real ones, which hold 53 bits"
            raise DistributionError(must, f"Write whole numbers only, or another one than {inexact[0]}.")
        values = [float(value) for value in values]
    if len(set(values)) < len(values):
        raise DistributionError("the values of a choice must differ", "Keep each once.")
    return Distribution("choice", choices=tuple(values))


def ordered(search: Mapping[str, Distribution]) -> dict[str, Distribution]:
    """Sort the space by name, with conditions after the hyperparameters that they name.

    The order does not depend on the file, so that a sampler draws the same from a file and its record.

    Raises:
        DistributionError: The conditions form a cycle.
    """
    done: dict[str, Distribution] = {}
    while len(done) < len(search):
        ready = [name for name in sorted(search) if name not in done and set(search[name].when) <= set(done)]
        if not ready:
            remedy = "Search one of them without a condition."
            raise DistributionError("conditions must not form a cycle", remedy)
        done |= {name: search[name] for name in ready}
    return done


def read_space(section: Mapping[str, SearchEntry]) -> dict[str, Distribution]:
    """Return the space of the section `search`, in canonical order.

    Raises:
        Violation: Nothing can be drawn from a distribution, or a condition is wrong.
    """
    free: dict[str, Distribution] = {}
    wrong: list[Violation] = []
    for name, entry in section.items():
        try:
            free[name] = _distribution(name, entry)
        except Violation as violation:
            wrong.append(violation)
    raise_all(wrong)
    space = {name: _conditioned(name, section[name].when or {}, free) for name in free}
    try:
        return ordered(space)
    except DistributionError as error:
        conditional = next(name for name, distribution in space.items() if distribution.when)
        raise Violation(("search", conditional, "when"), error.must, error.remedy) from None


def _distribution(name: str, entry: SearchEntry) -> Distribution:
    path = ("search", name)
    given = [kind for kind in KINDS if getattr(entry, kind) is not None]
    if len(given) != 1:
        must = f"must have exactly one of {', '.join(KINDS)}"
        raise Violation(path, must, f"For example {name}: {{uniform: [0.1, 0.9]}}.")
    kind = given[0]
    value = getattr(entry, kind)
    try:
        if kind != "choice":
            low, high = value
            return ranged(kind, low, high, entry.step)
        if entry.step is not None:
            raise DistributionError("a choice has no step", "Leave the step out.")
        return chosen(value)
    except DistributionError as error:
        raise Violation((*path, kind), error.must, error.remedy) from None


def _conditioned(name: str, when: Mapping[str, Any], free: Mapping[str, Distribution]) -> Distribution:
    layer = name.partition(".")[0]
    if "layer" in free and layer in free["layer"].choices:
        when = _with_layer(name, layer, when)
    conditions = {}
    for parent, given in when.items():
        path = ("search", name, "when", parent)
        parents = [other for other in free if other != name and free[other].kind in {"choice", "int"}]
        if parent not in parents:
            must = "must name another searched choice or int"
            raise Violation(path, must, nearest(parent, parents), f"`{parent}`")
        values = tuple(given) if isinstance(given, list | tuple) else (given,)
        if not values or not all(free[parent].holds(value) for value in values):
            listed = flow(list(free[parent].choices[:12]) or [free[parent].low, free[parent].high])
            raise Violation(path, f"must be values of {parent}", f"They are {listed}.")
        conditions[parent] = values
    return replace(free[name], when=conditions)


def _with_layer(name: str, layer: str, when: Mapping[str, Any]) -> dict[str, Any]:
    """Return the condition of `<layer>.<name>`, which is drawn only where that layer is."""
    if when.get("layer", layer) not in (layer, [layer]):
        path = ("search", name, "when", "layer")
        raise Violation(path, f"must be {layer}, which the name begins with", "Leave it out.")
    return {"layer": layer, **when}


def active(distribution: Distribution, drawn: Mapping[str, Any]) -> bool:
    """Return True if a hyperparameter is drawn, given the values drawn before it."""
    return all(name in drawn and drawn[name] in values for name, values in distribution.when.items())


def combinations(search: Mapping[str, Distribution], names: frozenset[str]) -> Iterator[dict[str, Value]]:
    """Yield every assignment of some hyperparameters and of those that their conditions name.

    Args:
        search: Ordered space.
        names: Hyperparameters with finitely many values; those that are not searched are ignored.
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
    """Return the number of assignments that `combinations` considers."""
    return math.prod(search[name].count() or 0 for name in _with_parents(search, names))


def _with_parents(search: Mapping[str, Distribution], names: frozenset[str]) -> list[str]:
    wanted = {name for name in names if name in search}
    while parents := {parent for name in wanted for parent in search[name].when} - wanted:
        wanted |= parents
    return [name for name in search if name in wanted]
