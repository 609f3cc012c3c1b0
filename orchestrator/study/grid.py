"""Every combination once, in an order that the seed decides.

Optuna's own grid tries the published values a second time and repeats points that still run; this one does
neither, and needs no list of all combinations.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.config.space import Distribution


@dataclass(frozen=True)
class Grid:
    """The combinations of a space without conditions, without one that was tried before.

    Attributes:
        values: all that each hyperparameter may be.
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
        """Return the grid of a space whose hyperparameters all have finitely many values."""
        values = {name: tuple(distribution.values() or ()) for name, distribution in search.items()}
        size = math.prod(len(each) for each in values.values())
        draws = random.Random(seed)
        offset, stride = draws.randrange(size), 0
        while math.gcd(stride, size) != 1:
            stride = draws.randrange(1, size + 1)
        return cls(values, offset, stride, None if tried is None else _index(values, tried))

    @property
    def size(self) -> int:
        """Return the number of combinations."""
        return math.prod(len(each) for each in self.values.values())

    def point(self, position: int) -> dict[str, Any] | None:
        """Return the combination at a position in the order, or None behind the last one."""
        if self.skipped is not None and position >= self._position(self.skipped):
            position += 1
        if position >= self.size:
            return None
        index = (self.offset + position * self.stride) % self.size
        params: dict[str, Any] = {}
        for name, each in self.values.items():
            index, digit = divmod(index, len(each))
            params[name] = each[digit]
        return params

    def _position(self, index: int) -> int:
        return (index - self.offset) * pow(self.stride, -1, self.size) % self.size


def _index(values: Mapping[str, tuple[Any, ...]], params: Mapping[str, Any]) -> int:
    index, weight = 0, 1
    for name, each in values.items():
        index += weight * _digit(each, params[name])
        weight *= len(each)
    return index


def _digit(each: tuple[Any, ...], value: Any) -> int:
    """Return the place of a value among those of its hyperparameter; a step's multiples are not exact."""
    if isinstance(value, float):
        return min(range(len(each)), key=lambda place: abs(each[place] - value))
    return each.index(value)
