"""Conversion of a search space to Optuna's distributions, and drawing from them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from orchestrator.config.space import Distribution, active


def to_optuna(distribution: Distribution) -> BaseDistribution:
    """Return a distribution as Optuna's."""
    if distribution.kind == "choice":
        return CategoricalDistribution(distribution.choices)
    assert distribution.low is not None
    assert distribution.high is not None
    low, high, log = distribution.low, distribution.high, distribution.kind.startswith("log_")
    if distribution.kind in {"int", "log_int"}:
        return IntDistribution(int(low), int(high), log=log, step=int(distribution.step or 1))
    return FloatDistribution(float(low), float(high), log=log, step=distribution.step)


def converted(search: Mapping[str, Distribution]) -> dict[str, BaseDistribution]:
    """Return every distribution of a space as Optuna's."""
    return {name: to_optuna(distribution) for name, distribution in search.items()}


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
    return trial.suggest_float(name, of_optuna.low, of_optuna.high, step=of_optuna.step, log=of_optuna.log)


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

    Attributes:
        values: every value of each hyperparameter.
        offset: index of the first combination.
        stride: distance from one combination to the next, coprime to their number.
        skipped: index of a combination to leave out, or None.
    """

    values: Mapping[str, tuple[Any, ...]]
    offset: int
    stride: int
    skipped: int | None

    @classmethod
    def of(cls, search: Mapping[str, Distribution], seed: int, tried: Mapping[str, Any] | None) -> Grid:
        """Return the grid of a space in which each hyperparameter has finitely many values."""
        values = {name: tuple(distribution.values() or ()) for name, distribution in search.items()}
        size = math.prod(map(len, values.values()))
        draws = random.Random(seed)
        offset, stride = draws.randrange(size), 0
        while math.gcd(stride, size) != 1:
            stride = draws.randrange(1, size + 1)
        return cls(values, offset, stride, None if tried is None else _index(values, tried))

    @property
    def size(self) -> int:
        """Return the number of combinations."""
        return math.prod(map(len, self.values.values()))

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
        for name, values in self.values.items():
            index, digit = divmod(index, len(values))
            params[name] = values[digit]
        return params

    def _position(self, index: int) -> int:
        return (index - self.offset) * pow(self.stride, -1, self.size) % self.size


def _index(values: Mapping[str, tuple[Any, ...]], params: Mapping[str, Any]) -> int:
    index, weight = 0, 1
    for name, of_name in values.items():
        index += weight * _digit(of_name, params[name])
        weight *= len(of_name)
    return index


def _digit(values: tuple[Any, ...], value: Any) -> int:
    """Return the index of a value; the nearest one for a float, because multiples of a step are not exact."""
    if isinstance(value, float):
        return min(range(len(values)), key=lambda index: abs(values[index] - value))
    return values.index(value)
