"""Search space: a distribution for each hyperparameter, and conditions between them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Literal

from orchestrator.config.document import Violation, flow, nearest, raise_all
from orchestrator.config.sections import SearchEntry

Kind = Literal["uniform", "log_uniform", "int", "log_int", "power_of_two", "normal", "log_normal", "choice"]
Value = Any
"""A plain JSON value: null, a boolean, a number, a string, a list or a mapping."""

MOST_CHOICES = 1_000
KINDS: tuple[Kind, ...] = (
    "uniform",
    "log_uniform",
    "int",
    "log_int",
    "power_of_two",
    "normal",
    "log_normal",
    "choice",
)
WHOLE: frozenset[Kind] = frozenset({"int", "log_int", "power_of_two"})
"""Kinds of distribution that draw whole numbers."""
NORMAL: frozenset[Kind] = frozenset({"normal", "log_normal"})

LARGEST_WHOLE = 2**53
"""Whole numbers above it differ by more than 1 in float64, with which samplers calculate."""

QUANTILES = 2**30
"""Number of quantiles from which a normal distribution is drawn."""
_STANDARD = NormalDist()
_DISTINCT = 8
"""Least distance of two quantiles in units of the last place, so that rounding does not confuse them."""
FARTHEST = -_STANDARD.inv_cdf(0.5 / QUANTILES)
"""Distance of the outermost quantiles from the mean, in standard deviations: 6.2."""


class DistributionError(ValueError):
    """A distribution without values.

    Args:
        must: Requirement.
        remedy: Correction to suggest.
    """

    def __init__(self, must: str, remedy: str) -> None:
        super().__init__(must, remedy)
        self.must, self.remedy = must, remedy


def alike(one: Any, other: Any) -> bool:
    """Return True if two values are equal and, except for numbers, of the same type."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(value, other[key]) for key, value in one.items())
    return bool(one == other)


def find(values: Sequence[Any], wanted: Any) -> int | None:
    """Return the index of a value among others, or None."""
    return next((index for index, value in enumerate(values) if alike(value, wanted)), None)


@dataclass(frozen=True)
class Distribution:
    """Distribution and conditions of one hyperparameter.

    Attributes:
        kind: Uniform, log_uniform, normal and log_normal draw real numbers, int, log_int and power_of_two
            whole ones, choice a listed value.
        low: Smallest value, inclusive; None for a choice.
        high: Largest value, inclusive; None for a choice.
        step: Distance between the values of a uniform, int or log_int range; None for a continuous one.
        choices: Values of a choice, or their labels.
        when: Other hyperparameters, and the values of each under which this one is drawn.
        labelled: Values that the labels in `choices` stand for; empty if these are the values themselves.
        is_scale: Whether the values of a choice are ordered, so that a sampler can use their distances.
        moments: Mean and standard deviation of a normal distribution, or of the logarithm; None for others.
    """

    kind: Kind
    low: float | int | None = None
    high: float | int | None = None
    step: float | int | None = None
    choices: tuple[Value, ...] = ()
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    labelled: tuple[Value, ...] = ()
    is_scale: bool = False
    moments: tuple[float, float] | None = None

    def ends(self) -> tuple[Any, Any]:
        """Return the smallest and the largest value; the first and the last of a choice without an order."""
        if self.kind != "choice":
            return self.low, self.high
        types = {type_of(value) for value in self.choices}
        if self.labelled or self.is_scale or len(types) > 1 or not types <= {"number", "word", "flag"}:
            return self.choices[0], self.choices[-1]
        return min(self.choices), max(self.choices)

    def count(self) -> int | None:
        """Return the number of values, or None for a continuous range."""
        if self.kind == "choice":
            return len(self.choices)
        low, high = self._bounds()
        if low == high:
            return 1
        if self.kind == "power_of_two":
            return int(high).bit_length() - int(low).bit_length() + 1
        if self.kind in WHOLE:
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
        if self.kind == "power_of_two":
            return int(low) << index
        if self.kind in WHOLE:
            return int(low) + index * int(self.step or 1)
        return min(low + index * (self.step or 0.0), high)

    def index(self, value: Any) -> int:
        """Return the index of a value, in a range the index of the nearest one, because steps are rounded."""
        if self.kind == "choice":
            found = find(self.choices, value)
            assert found is not None, f"{value!r} is not one of {self.choices}"
            return found
        low, _ = self._bounds()
        count = self.count()
        assert count is not None, "a continuous range has no list of values"
        if self.kind == "power_of_two":
            nearest_one = round(math.log2(value / low)) if value > 0 else 0
            return min(max(nearest_one, 0), count - 1)
        step = self.step or (1 if self.kind in WHOLE else None)
        return 0 if step is None else min(max(round((value - low) / step), 0), count - 1)

    def holds(self, value: Any) -> bool:
        """Return True if `value` can be drawn."""
        if self.kind == "choice":
            return find(self.choices, value) is not None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        low, high = self._bounds()
        if not low <= value <= high:
            return False
        if self.kind == "power_of_two":
            return bool(value == self.value(self.index(value)))
        step = self.step or (1 if self.kind in WHOLE else None)
        return step is None or _divides(step, value - low)

    def typed(self, value: Any) -> Value:
        """Return a value that `holds` with the type of a drawn value, such as int for a whole number."""
        if self.kind == "choice":
            return self.choices[self.index(value)]
        return round(value) if self.kind in WHOLE else float(value)

    def meaning(self, value: Any) -> Value:
        """Return the value that a trial trains with: that of a label, and any other value itself."""
        return self.labelled[self.index(value)] if self.labelled else value

    def quantile(self, value: float) -> int:
        """Return the number of the quantile, from 0 to `QUANTILES` - 1, of a normal distribution."""
        mean, deviation = self._normal()
        distance = ((math.log(value) if self.kind == "log_normal" else value) - mean) / deviation
        return min(max(math.floor(_STANDARD.cdf(distance) * QUANTILES), 0), QUANTILES - 1)

    def at_quantile(self, number: int) -> float:
        """Return the value in the middle of a quantile of a normal distribution."""
        mean, deviation = self._normal()
        low, high = self._bounds()
        value = mean + deviation * _STANDARD.inv_cdf((number + 0.5) / QUANTILES)
        return min(max(math.exp(value) if self.kind == "log_normal" else value, low), high)

    def draw(self, rng: random.Random) -> Value:
        """Return one independent draw."""
        count = self.count()
        if self.kind in NORMAL and count != 1:
            return self.at_quantile(rng.randrange(QUANTILES))
        if count is not None and self.kind != "log_int":
            return self.value(rng.randrange(count))
        low, high = self._bounds()
        if self.kind == "uniform":
            return self.nearest(rng.uniform(low, high))
        low, high = self.rounding_bounds()
        return self.nearest(math.exp(rng.uniform(math.log(low), math.log(high))))

    def rounding_bounds(self) -> tuple[float, float]:
        """Return the bounds of a logarithmic range; those of log_int include what rounds to its values."""
        low, high = self._bounds()
        if self.kind != "log_int":
            return low, high
        half = (self.step or 1) / 2
        return (low - half if low > half else low), high + half

    def nearest(self, value: float) -> Value:
        """Return the value that is closest to a number, or the equal value of a choice."""
        if self.count() is not None:
            return self.value(self.index(value))
        low, high = self._bounds()
        return float(min(max(value, low), high))

    def _bounds(self) -> tuple[float, float]:
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high

    def _normal(self) -> tuple[float, float]:
        assert self.moments is not None
        return self.moments

    def described(self) -> str:
        """Return the distribution in words, such as `uniform [0, 1]`."""
        shown = list(self.moments or self.choices[:12] or (self.low, self.high))
        return f"{self.kind} {flow(shown)}"

    def document(self) -> dict[str, Any]:
        """Return this distribution as an entry of the section `search`."""
        given = self.moments or (self.labelled or self.choices or (self.low, self.high))
        entry: dict[str, Any] = {self.kind: list(given)}
        if self.labelled:
            entry["labels"] = list(self.choices)
        if self.is_scale:
            entry["ordered"] = True
        if self.step is not None:
            entry["step"] = self.step
        if self.when:
            entry["when"] = {name: list(values) for name, values in sorted(self.when.items())}
        return entry


def type_of(value: Any) -> str:
    """Return the type of a value: a number, a word, a flag, or other."""
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "number"
    return "word" if isinstance(value, str) else "other"


def _divides(step: float, distance: float) -> bool:
    steps = distance / step
    return math.isclose(steps, round(steps), rel_tol=1e-9, abs_tol=1e-9)


def ranged(kind: Kind, low: float | int, high: float | int, step: float | None) -> Distribution:
    """Return the distribution of a range.

    Raises:
        DistributionError: `low` > `high`, a logarithm of zero, an end that is not a power of two, a range
            that is too wide for float64, or a step that does not divide the range.
    """
    if low > high:
        raise DistributionError("low <= high must hold", f"Write [{high:g}, {low:g}].")
    if not math.isfinite(float(high) - float(low)):
        raise DistributionError("high - low must be a finite number", f"Write [{low / 4:g}, {high / 4:g}].")
    if kind in WHOLE and max(abs(low), abs(high)) > LARGEST_WHOLE:
        must = "whole numbers must be at most 2^53, because samplers calculate in float64"
        raise DistributionError(must, f"Write a range within [-{LARGEST_WHOLE}, {LARGEST_WHOLE}].")
    if kind == "power_of_two" and not all(_is_power(end) for end in (low, high)):
        raise DistributionError("both ends must be powers of two, from 1", "Write [16, 512], for example.")
    if kind.startswith("log_") and low <= 0:
        raise DistributionError(
            "low > 0 must hold for a logarithm", f"Raise it, or write {kind.removeprefix('log_')}."
        )
    if step is None:
        return Distribution(kind, low, high)
    if kind == "log_uniform":
        raise DistributionError("a logarithmic range of real numbers has no step", "Leave the step out.")
    if kind == "power_of_two":
        raise DistributionError("powers of two have no step", "Leave the step out.")
    if kind in WHOLE and step != int(step):
        raise DistributionError(
            f"the step of {kind} must be a whole number", f"Write step: {max(1, round(step))}."
        )
    _check_step(low, high, step)
    return Distribution(kind, low, high, int(step) if kind in WHOLE else step)


def _is_power(value: float) -> bool:
    return value >= 1 and value == int(value) and int(value).bit_count() == 1


def normal(kind: Kind, mean: float, deviation: float) -> Distribution:
    """Return a normal distribution, or one whose logarithm is normal.

    It is drawn from `QUANTILES` quantiles, each as probable as any other, so that every sampler can use it as
    a bounded range. Its values are within `FARTHEST` standard deviations of the mean.

    Args:
        kind: `normal` or `log_normal`.
        mean: Mean, of the logarithm for `log_normal`.
        deviation: Standard deviation, of the logarithm for `log_normal`.

    Raises:
        DistributionError: The deviation is not positive, or float64 cannot hold or distinguish the values.
    """
    if deviation <= 0:
        raise DistributionError("the standard deviation must be above 0", "Write [mean, deviation].")
    low, high = mean - FARTHEST * deviation, mean + FARTHEST * deviation
    if kind == "log_normal":
        low, high = _exponential(low), _exponential(high)
    if not math.isfinite(high - low) or (kind == "log_normal" and low <= 0):
        must = f"all values within {FARTHEST:.1f} standard deviations must be finite numbers of 64 bits"
        raise DistributionError(must, "Write a smaller mean or deviation.")
    found = Distribution(kind, low, high, moments=(mean, deviation))
    median, following = (found.at_quantile(number) for number in (QUANTILES // 2, QUANTILES // 2 + 1))
    if following - median < _DISTINCT * math.ulp(median):
        must = f"the standard deviation must be large enough for {QUANTILES:,} different values"
        raise DistributionError(must, "Write a larger one.")
    return found


def _exponential(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


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


def chosen(values: Sequence[Any], labels: Sequence[str] = (), *, is_scale: bool = False) -> Distribution:
    """Return the distribution of a choice.

    Args:
        values: Values, of any types.
        labels: A label for each value, by which it is recorded and shown; none for the values themselves.
        is_scale: Whether the values are in order.

    Raises:
        DistributionError: The list is empty, too long, or has duplicates, or the labels do not fit it.
    """
    if not values:
        raise DistributionError("a choice must have at least one value", "Write choice: [a, b].")
    if len(values) > MOST_CHOICES:
        raise DistributionError(f"a choice has at most {MOST_CHOICES:,} values", "Write a range instead.")
    if _has_duplicates(values):
        raise DistributionError("the values of a choice must differ", "Keep each once.")
    if not labels:
        return Distribution("choice", choices=tuple(values), is_scale=is_scale)
    if len(labels) != len(values) or _has_duplicates(labels) or not all(map(str.strip, labels)):
        raise DistributionError("a choice must have one label for each value", "Name each value once.")
    return Distribution("choice", choices=tuple(labels), labelled=tuple(values), is_scale=is_scale)


def _has_duplicates(values: Sequence[Any]) -> bool:
    scalars = [(type_of(value), value) for value in values if type_of(value) != "other"]
    others = [value for value in values if type_of(value) == "other"]
    repeated = any(find(others[:index], value) is not None for index, value in enumerate(others))
    return len(set(scalars)) < len(scalars) or repeated


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


def recorded_space(search: Mapping[str, Any]) -> dict[str, Distribution]:
    """Return the space of the section `search` of a document in the ledger."""
    return read_space({name: SearchEntry.model_validate(entry) for name, entry in search.items()})


def _distribution(name: str, entry: SearchEntry) -> Distribution:
    path = ("search", name)
    given = [kind for kind in KINDS if getattr(entry, kind) is not None]
    if len(given) != 1:
        must = f"must have exactly one of {', '.join(KINDS)}"
        raise Violation(path, must, f"For example {name}: {{uniform: [0.1, 0.9]}}.")
    kind = given[0]
    value = getattr(entry, kind)
    if kind != "choice" and (
        unfit := next((key for key in ("labels", "ordered") if getattr(entry, key)), "")
    ):
        raise Violation((*path, unfit), "requires a choice", "Leave it out.")
    try:
        if kind == "choice":
            if entry.step is not None:
                raise DistributionError("a choice has no step", "Leave the step out.")
            return _choice(value, entry)
        low, high = value
        if kind not in NORMAL:
            return ranged(kind, low, high, entry.step)
        if entry.step is not None:
            raise DistributionError("a normal distribution has no step", "Leave the step out.")
        return normal(kind, low, high)
    except DistributionError as error:
        raise Violation((*path, kind), error.must, error.remedy) from None


def _choice(value: Any, entry: SearchEntry) -> Distribution:
    if not isinstance(value, Mapping):
        return chosen(value, entry.labels or (), is_scale=entry.ordered)
    if entry.labels:
        raise DistributionError("a choice with labels as keys must have no `labels`", "Leave `labels` out.")
    return chosen(list(value.values()), list(value), is_scale=entry.ordered)


def _conditioned(name: str, when: Mapping[str, Any], free: Mapping[str, Distribution]) -> Distribution:
    layer = name.partition(".")[0]
    if "layer" in free and layer in free["layer"].choices:
        when = _with_layer(name, layer, when)
    conditions = {}
    for parent, given in when.items():
        path = ("search", name, "when", parent)
        parents = [
            other for other in free if other != name and free[other].kind in {"choice", "int", "power_of_two"}
        ]
        if parent not in parents:
            must = "must name another searched choice, int or power_of_two"
            raise Violation(path, must, nearest(parent, parents), f"`{parent}`")
        values = tuple(given) if isinstance(given, list | tuple) else (given,)
        if not values or not all(free[parent].holds(value) for value in values):
            listed = flow(list(free[parent].choices[:12]) or [free[parent].low, free[parent].high])
            raise Violation(path, f"must be values of {parent}", f"They are {listed}.")
        conditions[parent] = values
    return replace(free[name], when=conditions)


def _with_layer(name: str, layer: str, when: Mapping[str, Any]) -> dict[str, Any]:
    """Return the condition of `<layer>.<name>`, which is drawn only with that layer."""
    if when.get("layer", layer) not in (layer, [layer]):
        path = ("search", name, "when", "layer")
        raise Violation(path, f"must be {layer}, which the name begins with", "Leave it out.")
    return {"layer": layer, **when}


def active(distribution: Distribution, drawn: Mapping[str, Any]) -> bool:
    """Return True if a hyperparameter is drawn, given the values drawn before it."""
    return all(
        name in drawn and find(values, drawn[name]) is not None for name, values in distribution.when.items()
    )


def combinations(search: Mapping[str, Distribution], names: frozenset[str]) -> Iterator[dict[str, Value]]:
    """Yield every assignment of some hyperparameters and of those that their conditions name.

    Args:
        search: Ordered space.
        names: Hyperparameters with finitely many values; those that are not searched are ignored.
    """
    wanted = _with_parents(search, names)
    domains = [search[name].values() for name in wanted]
    seen: set[tuple[tuple[str, int], ...]] = set()
    for indices in itertools.product(*(range(len(domain)) for domain in domains)):
        drawn: dict[str, Value] = {}
        chosen_indices = {}
        for name, domain, index in zip(wanted, domains, indices, strict=True):
            if active(search[name], drawn):
                drawn[name], chosen_indices[name] = domain[index], index
        key = tuple(chosen_indices.items())
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
