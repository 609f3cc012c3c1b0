"""Conversion of a search space to Optuna's distributions, and drawing from them."""

from __future__ import annotations

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

from orchestrator.config.space import Distribution, active
from orchestrator.study.optuna_private import contains, suggest


def to_optuna(distribution: Distribution) -> BaseDistribution:
    """Return a distribution as Optuna's."""
    if distribution.kind == "choice":
        return CategoricalDistribution(distribution.choices)
    assert distribution.low is not None
    assert distribution.high is not None
    low, high, log = distribution.low, distribution.high, distribution.kind.startswith("log_")
    if distribution.kind in {"int", "log_int"}:
        return IntDistribution(int(low), int(high), log=log, step=int(distribution.step or 1))
    if distribution.step is None:
        return FloatDistribution(float(low), float(high), log=log)
    of_optuna = FloatDistribution(float(low), _upper_end(distribution))
    of_optuna.step = float(distribution.step)  # as an argument it would shorten the range, see `_upper_end`
    return of_optuna


def _upper_end(distribution: Distribution) -> float:
    """Return the upper end of a range with a step in Optuna.

    Optuna counts the steps in decimals: those of pi are less than four times those of pi/4, so that the range
    would end after three steps. Where the decimals do not divide, the end lies as little above the last value
    as keeps all steps, also when Optuna reads the distribution from a file.
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

    That is the value itself, but in a range with a step for one that is less exact than Optuna demands, as
    the value of a file may be, or as the upper end is whose decimals do not divide.
    """
    if not _by_steps(distribution) or not distribution.holds(value):
        return value
    of_optuna = to_optuna(distribution)
    assert isinstance(of_optuna, FloatDistribution)
    exact = of_optuna.high == distribution.high and contains(of_optuna, value)
    return value if exact else on_step(of_optuna, value)


def _by_steps(distribution: Distribution) -> bool:
    return distribution.kind == "uniform" and distribution.step is not None


def draw(trial: Trial, search: Mapping[str, Distribution]) -> dict[str, Any]:
    """Draw the active hyperparameters, in the order of the space."""
    drawn: dict[str, Any] = {}
    for name, distribution in search.items():
        if active(distribution, drawn):
            drawn[name] = _suggest(trial, name, distribution)
    return drawn


def _suggest(trial: Trial, name: str, distribution: Distribution) -> Any:
    of_optuna = to_optuna(distribution)
    if isinstance(of_optuna, CategoricalDistribution):
        return trial.suggest_categorical(name, of_optuna.choices)
    if isinstance(of_optuna, IntDistribution):
        return trial.suggest_int(name, of_optuna.low, of_optuna.high, step=of_optuna.step, log=of_optuna.log)
    assert isinstance(of_optuna, FloatDistribution)
    if _by_steps(distribution):
        return distribution.value(distribution.index(suggest(trial, name, of_optuna)))
    return trial.suggest_float(name, of_optuna.low, of_optuna.high, log=of_optuna.log)


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
    """The combinations of a space without conditions, except one that was tried before.

    No list of values is made: a file of a few bytes can search a range of 10^9 numbers.

    Attributes:
        search: The space, in which each hyperparameter has finitely many values.
        offset: Index of the first combination.
        stride: Distance from one combination to the next, coprime to their number.
        skipped: Index of a combination to leave out, or None.
    """

    search: Mapping[str, Distribution]
    offset: int
    stride: int
    skipped: int | None

    @classmethod
    def of(cls, search: Mapping[str, Distribution], seed: int, tried: Mapping[str, Any] | None) -> Grid:
        """Return the grid of a space in which each hyperparameter has finitely many values."""
        size = _size(search)
        draws = random.Random(seed)
        offset, stride = draws.randrange(size), 0
        while math.gcd(stride, size) != 1:
            stride = draws.randrange(1, size + 1)
        return cls(search, offset, stride, None if tried is None else _index(search, tried))

    @property
    def size(self) -> int:
        """Return the number of combinations."""
        return _size(self.search)

    @property
    def points(self) -> int:
        """Return the number of combinations without the skipped one."""
        return self.size - (self.skipped is not None)

    def point(self, position: int) -> dict[str, Any] | None:
        """Return the combination at a position in the order, or None after the last one."""
        if self.skipped is not None and position >= self._position(self.skipped):
            position += 1
        if position >= self.size:
            return None
        index = (self.offset + position * self.stride) % self.size
        params: dict[str, Any] = {}
        for name, distribution in self.search.items():
            index, digit = divmod(index, _count(distribution))
            params[name] = distribution.value(digit)
        return params

    def _position(self, index: int) -> int:
        return (index - self.offset) * pow(self.stride, -1, self.size) % self.size


def _index(search: Mapping[str, Distribution], params: Mapping[str, Any]) -> int:
    index, weight = 0, 1
    for name, distribution in search.items():
        index += weight * distribution.index(params[name])
        weight *= _count(distribution)
    return index


def _size(search: Mapping[str, Distribution]) -> int:
    return math.prod(map(_count, search.values()))


def _count(distribution: Distribution) -> int:
    count = distribution.count()
    assert count is not None, "the specification refuses a grid of a continuous range"
    return count
