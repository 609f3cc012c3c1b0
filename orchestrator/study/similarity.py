"""Similarity of an earlier task to the present one, which decides how many of its results a sampler is shown.

The first trials of a sweep repeat settings of the earlier results, from the best one to the worst: four in
the place of random draws, and four more if their values are in a similar order. The rank correlation of the
two values of each shared setting is the similarity. Unless it is positive beyond its error, no earlier result
is shown. Otherwise a few are, and fewer with each complete trial of the sweep: with many, or for long, a
sampler explores the earlier task instead of this one. Their values are translated to those of the present
task by a straight line through the shared settings, because a sampler compares them with values of this
sweep.

Source: Spearman, The Proof and Measurement of Association between Two Things (1904), for the correlation and
for its error, 1 / sqrt(n - 1).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_REPEATED = 4
"""Number of settings that are repeated first, and from which on their correlation counts."""

MOST_REPEATED = 8
"""Maximum number of repeated settings of one source."""

PROMISING = 0.6
"""Correlation of the first repeated settings from which on more are repeated; 5 of 24 orders reach it."""

ERRORS = 1.64
"""Standard errors above 0 from which on a correlation counts; 1 in 20 unrelated tasks reaches it."""

MOST_SHOWN = 16
"""Maximum number of earlier results that are shown, at a correlation of 1."""

FADED = 32
"""Number of complete trials of the sweep from which on no earlier result is shown."""


@dataclass
class Similarity:
    """The similarity between one source and a sweep, whose trials are added one by one.

    Args:
        params: Hyperparameters of the earlier results, in the space of the sweep.
        values: Their values.
        maximize: Whether a larger value is better.
        run: Number of the best settings to repeat; with 0 those that show best how similar the tasks are.
    """

    params: Sequence[Mapping[str, Any]]
    values: Sequence[float]
    maximize: bool
    run: int = 0
    _begun: set[int] = field(default_factory=set, init=False)
    _own: dict[int, tuple[int, float]] = field(default_factory=dict, init=False)
    _complete: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        sign = -1.0 if self.maximize else 1.0
        self._places = _places(self.params)
        self._order = sorted(range(len(self.values)), key=lambda index: sign * self.values[index])
        self._plan = self._order[: self.run or 1]
        if not self.run:
            for part in (1, 2, 3, *range(MOST_REPEATED - LEAST_REPEATED)):
                self._plan += self._farthest(part)
        self._first = self._plan[: self.run or LEAST_REPEATED]
        self._index = {_key(each): index for index, each in reversed(list(enumerate(self.params)))}

    def _farthest(self, quarter: int) -> list[int]:
        """Return the setting in a quarter of the ranks that is farthest from the repeated ones, or none.

        The first trials of a sweep also explore. The distance is the L1 norm.
        """
        count = len(self._order)
        ranked = self._order[quarter * count // 4 : (quarter + 1) * count // 4]
        left = [index for index in ranked if index not in self._plan]
        repeated = self._places[self._plan]
        distances = [np.abs(repeated - self._places[index]).sum(axis=1).min() for index in left]
        return [left[int(np.argmax(distances))]] if left else []

    def next(self) -> Mapping[str, Any] | None:
        """Return the setting that the next trial repeats, or None if it repeats none.

        All settings but the first four wait until those have ended, except for those to be run.
        """
        left = [index for index in self._plan if index not in self._begun]
        if not left or left[0] in self._first:
            return self.params[left[0]] if left else None
        is_promising = self.correlation is not None and self.correlation >= PROMISING
        return self.params[left[0]] if is_promising and self._own.keys() >= set(self._first) else None

    def begin(self, params: Mapping[str, Any]) -> None:
        """Add a trial of the sweep that was asked for."""
        if (index := self._index.get(_key(params))) is not None:
            self._begun.add(index)

    def add(self, params: Mapping[str, Any], value: float | None, *, complete: bool) -> None:
        """Add a finished trial of the sweep.

        Args:
            params: Hyperparameters of the trial.
            value: Its value; None for a failed trial, which counts as the worst one.
            complete: Whether the trial has run to its end. Any that has counts as better than one that has
                not, because the values of stopped trials cannot be compared.
        """
        self._complete += complete
        if (index := self._index.get(_key(params))) is not None:
            score = (0, 0.0) if value is None else (1 + complete, value if self.maximize else -value)
            self._own[index] = max(score, self._own.get(index, score))

    @property
    def begun(self) -> int:
        """Return the number of earlier settings that trials of the sweep repeat."""
        return len(self._begun)

    @property
    def shared(self) -> int:
        """Return the number of settings that both tasks have a result of."""
        return len(self._own)

    @property
    def correlation(self) -> float | None:
        """Return the rank correlation on shared settings, from -1 to 1; None with fewer than four."""
        if self.shared < LEAST_REPEATED:
            return None
        sign, order = 1.0 if self.maximize else -1.0, sorted(set(self._own.values()))
        earlier = [sign * self.values[index] for index in self._own]
        return rank_correlation(earlier, [order.index(score) for score in self._own.values()])

    @property
    def weight(self) -> float:
        """Return the correlation if it is positive beyond its error, and else 0."""
        correlation = self.correlation
        if correlation is None or correlation < ERRORS / math.sqrt(self.shared - 1):
            return 0.0
        return correlation

    def facts(self) -> dict[str, Any]:
        """Return the similarity as plain values: `results`, `shared`, `correlation` and `weight`."""
        return {
            "results": len(self.values),
            "shared": self.shared,
            "correlation": self.correlation,
            "weight": self.weight,
        }

    def shown(self) -> dict[int, float]:
        """Return the earlier results that a sampler is shown: their translated values by index.

        They are spread evenly over the ranks, so that the share of good ones stays the same. Only complete
        trials determine the line; with fewer than two, nothing is shown.
        """
        count = math.floor(MOST_SHOWN * self.weight * max(0.0, 1 - self._complete / FADED))
        sign = 1.0 if self.maximize else -1.0
        pairs = [
            (self.values[index], sign * score) for index, (rank, score) in self._own.items() if rank == 2
        ]
        if not count or len({value for value, _ in pairs}) < 2:
            return {}
        earlier, own = np.array(pairs).T
        slope = max(0.0, float(np.cov(earlier, own)[0, 1] / np.var(earlier, ddof=1)))
        start = float(own.mean() - slope * earlier.mean())
        return {index: start + slope * self.values[index] for index in _spread(self._order, count)}


def most_repeated(trials: int) -> int:
    """Return the maximum number of settings, of all sources, that a sweep with these trials repeats."""
    return max(min(LEAST_REPEATED, trials // 2), trials // 8)


def _key(params: Mapping[str, Any]) -> str:
    return json.dumps(params, sort_keys=True)


def _places(params: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """Return the coordinates of settings from 0 to 1, of shape [settings, hyperparameters].

    A coordinate is the rank of a value among the distinct values of its hyperparameter.
    """
    names = sorted({name for each in params for name in each})
    places = np.zeros((len(params), len(names)))
    for column, name in enumerate(names):
        values = [json.dumps(each.get(name)) for each in params]
        known = sorted(set(values), key=lambda text: (not _is_number(text), _number(text), text))
        place = {value: index / max(1, len(known) - 1) for index, value in enumerate(known)}
        places[:, column] = [place[value] for value in values]
    return places


def _is_number(text: str) -> bool:
    return text[0] in "-0123456789"


def _number(text: str) -> float:
    return float(text) if _is_number(text) else 0.0


def _spread(order: Sequence[int], count: int) -> list[int]:
    """Return at most `count` elements of a sequence at equal distances, from the first to the last one."""
    if count >= len(order):
        return list(order)
    if count < 2:
        return list(order[:count])
    return [order[index * (len(order) - 1) // (count - 1)] for index in range(count)]


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's rank correlation of two samples of one length; 0 if one of them is constant."""
    ranks = [_ranks(np.array(values, float)) for values in (one, other)]
    first, second = (values - values.mean() for values in ranks)
    scale = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / scale if scale else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ranks of values; equal ones have their mean rank."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: NDArray[np.float64] = ends - (counts - 1) / 2
    return means[index]
