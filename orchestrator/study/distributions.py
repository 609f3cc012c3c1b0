"""Conversion of a search space to Optuna's distributions, and drawing from them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from orchestrator.config.space import NORMAL, QUANTILES, WHOLE, Distribution, active, type_of
from orchestrator.study.optuna_private import contains, suggest


def to_optuna(distribution: Distribution) -> BaseDistribution:
    """Return a distribution as Optuna's.

    Where Optuna has no such distribution, a study holds transformed values, see `as_held` and `as_drawn`:

    - a choice of several types, or of lists and mappings: their JSON texts;
    - an ordered choice: the indices of its values;
    - powers of two: their exponents;
    - a normal distribution: quantiles, as real numbers between 0 and 1;
    - log_int with a step: real numbers by their logarithm, rounded to the nearest value.
    """
    if distribution.kind == "choice":
        return _choice_to_optuna(distribution)
    assert distribution.low is not None
    assert distribution.high is not None
    low, high, log = distribution.low, distribution.high, distribution.kind.startswith("log_")
    if distribution.kind == "power_of_two":
        return IntDistribution(_exponent(low), _exponent(high))
    if distribution.kind in NORMAL:
        return FloatDistribution(0.5 / QUANTILES, 1 - 0.5 / QUANTILES)
    if _by_steps_of_logarithm(distribution):
        return FloatDistribution(*distribution.rounding_bounds(), log=True)
    if distribution.kind in WHOLE:
        return IntDistribution(int(low), int(high), log=log, step=int(distribution.step or 1))
    if distribution.step is None:
        return FloatDistribution(float(low), float(high), log=log)
    of_optuna = FloatDistribution(float(low), _upper_end(distribution))
    of_optuna.step = float(distribution.step)  # as an argument it would shorten the range, see `_upper_end`
    return of_optuna


def _choice_to_optuna(distribution: Distribution) -> BaseDistribution:
    if distribution.is_scale:
        return IntDistribution(0, len(distribution.choices) - 1)
    if _as_texts(distribution):
        return CategoricalDistribution(_texts(distribution))
    return CategoricalDistribution(distribution.choices)


def _texts(distribution: Distribution) -> list[str]:
    return [_text(choice) for choice in distribution.choices]


def _as_texts(distribution: Distribution) -> bool:
    """Return True for a choice whose values Optuna cannot hold or would confuse, such as 1 and true."""
    kinds = {type_of(value) for value in distribution.choices}
    return len(kinds) > 1 or "other" in kinds


def _text(choice: Any) -> str:
    return json.dumps(choice, sort_keys=True)


def _exponent(power: float) -> int:
    return int(power).bit_length() - 1


def _by_steps_of_logarithm(distribution: Distribution) -> bool:
    return distribution.kind == "log_int" and distribution.step is not None


def _upper_end(distribution: Distribution) -> float:
    """Return the upper end of a range with a step in Optuna.

    Optuna counts the steps in decimals: those of pi are less than four times those of pi/4, so that the range
    would end after three steps. Where the decimals do not divide, the end lies just far enough above the last
    value to keep all steps, also when Optuna reads the distribution from a file.
    """
    low, high = map(float, distribution.ends())
    count, step = distribution.count(), distribution.step
    assert count is not None
    assert step is not None
    last = Decimal(str(low)) + (count - 1) * Decimal(str(step))
    if last == Decimal(str(high)):
        return high
    end = max(high, low + (count - 1) * step, float(last))
    return end if Decimal(str(end)) >= last else math.nextafter(end, math.inf)


def converted(search: Mapping[str, Distribution]) -> dict[str, BaseDistribution]:
    """Return every distribution of a space as Optuna's."""
    return {name: to_optuna(distribution) for name, distribution in search.items()}


def on_step(of_optuna: BaseDistribution, value: Any) -> Any:
    """Return the value of a distribution of Optuna that is closest to `value`, if it has a step."""
    if not isinstance(of_optuna, FloatDistribution) or of_optuna.step is None:
        return value
    steps = round((value - of_optuna.low) / of_optuna.step)
    return min(of_optuna.low + steps * of_optuna.step, of_optuna.high)


def as_held(distribution: Distribution, value: Any) -> Any:
    """Return a value of a hyperparameter as a study holds it.

    It is the value itself, with two exceptions: the transformed values of `to_optuna`, and values of a range
    with a step that are less exact than Optuna requires, such as one from a file, or an upper end whose
    decimals do not divide.
    """
    if not distribution.holds(value):
        return value
    if distribution.kind == "choice":
        if distribution.is_scale:
            return distribution.index(value)
        return _text(distribution.typed(value)) if _as_texts(distribution) else value
    if distribution.kind == "power_of_two":
        return _exponent(value)
    if distribution.kind in NORMAL:
        return (distribution.quantile(value) + 0.5) / QUANTILES
    if _by_steps_of_logarithm(distribution):
        return float(value)
    if not _by_steps(distribution):
        return value
    of_optuna = to_optuna(distribution)
    assert isinstance(of_optuna, FloatDistribution)
    exact = of_optuna.high == distribution.high and contains(of_optuna, value)
    return value if exact else on_step(of_optuna, value)


def as_drawn(distribution: Distribution, held: Any) -> Any:
    """Return the value of a hyperparameter that a drawn or stored value stands for."""
    if distribution.kind == "choice":
        if distribution.is_scale:
            return distribution.choices[held]
        return distribution.choices[_texts(distribution).index(held)] if _as_texts(distribution) else held
    if distribution.kind == "power_of_two":
        return 1 << held
    if distribution.kind in NORMAL:
        return distribution.at_quantile(math.floor(held * QUANTILES))
    if _by_steps(distribution) or _by_steps_of_logarithm(distribution):
        return distribution.nearest(held)
    return held


def settled(distribution: Distribution, held: Any) -> Any:
    """Return a sampled value in the form in which a rebuilt study would hold it."""
    if _by_steps(distribution):
        return on_step(to_optuna(distribution), held)
    return as_held(distribution, as_drawn(distribution, held))


def _by_steps(distribution: Distribution) -> bool:
    return distribution.kind == "uniform" and distribution.step is not None


def draw(trial: Trial, search: Mapping[str, Distribution]) -> dict[str, Any]:
    """Draw the active hyperparameters, in the order of the space."""
    drawn: dict[str, Any] = {}
    for name, distribution in search.items():
        if active(distribution, drawn):
            drawn[name] = as_drawn(distribution, suggest(trial, name, to_optuna(distribution)))
    return drawn


def fits(search: Mapping[str, Distribution], params: Mapping[str, Any]) -> bool:
    """Return True if `params` has a value of each active hyperparameter, and no other."""
    expected: dict[str, Any] = {}
    for name, distribution in search.items():
        if active(distribution, expected):
            if name not in params or not distribution.holds(params[name]):
                return False
            expected[name] = params[name]
    return expected.keys() == params.keys()


@dataclass(frozen=True)
class Grid:
    """The combinations of a space without conditions, in an order determined by a seed.

    No list of values is made: a file of a few bytes can search a range of 10^9 numbers.

    Attributes:
        search: The space, in which each hyperparameter has finitely many values.
        offset: Index of the first combination.
        stride: Distance from one combination to the next, coprime to their number.
    """

    search: Mapping[str, Distribution]
    offset: int
    stride: int

    @classmethod
    def of(cls, search: Mapping[str, Distribution], seed: int) -> Grid:
        """Return the grid of a space in which each hyperparameter has finitely many values."""
        size = _size(search)
        draws = random.Random(seed)
        offset, stride = draws.randrange(size), 0
        while math.gcd(stride, size) != 1:
            stride = draws.randrange(1, size + 1)
        return cls(search, offset, stride)

    @property
    def size(self) -> int:
        """Return the number of combinations."""
        return _size(self.search)

    def point(self, position: int) -> dict[str, Any] | None:
        """Return the combination at a position in the order, or None after the last one."""
        if position >= self.size:
            return None
        index = (self.offset + position * self.stride) % self.size
        params: dict[str, Any] = {}
        for name, distribution in self.search.items():
            index, digit = divmod(index, _count(distribution))
            params[name] = distribution.value(digit)
        return params


def _size(search: Mapping[str, Distribution]) -> int:
    return math.prod(map(_count, search.values()))


def _count(distribution: Distribution) -> int:
    count = distribution.count()
    assert count is not None, "the specification refuses a grid of a continuous range"
    return count
