"""How similar an earlier task is to the present one, and how much of it a sampler is therefore shown.

The first trials of a sweep repeat settings of the earlier sweeps, from the best one to the worst. The rank
correlation of the two values of each setting is the similarity. With a low one, no earlier trial is shown,
and otherwise a few: with many, a sampler explores the earlier task instead of this one. Their values are
translated to those of the present task by a straight line through the repeated settings, because a sampler
compares them with values of this sweep.

Source: Spearman, The Proof and Measurement of Association between Two Things (1904), for the correlation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_REPEATED = 8
"""Maximum number of settings that are repeated, of 64 trials or more."""

LEAST_REPEATED = 4
"""Number of repeated settings from which on their correlation counts."""

LEAST_CORRELATION = 0.7
"""Correlation from which on trials are shown; unrelated tasks reach it with 8 settings in 3 of 100 cases."""

MOST_SHOWN = 16
"""Maximum number of earlier trials that are shown, at a correlation of 1."""


@dataclass
class Similarity:
    """The similarity of earlier trials to those of a sweep, whose values are added one by one.

    Args:
        params: Hyperparameters of the earlier trials, in the space of the sweep.
        values: Their values.
        maximize: Whether a larger value is better.
        trials: Budget of the sweep. One with fewer than 32 trials repeats no setting, and is shown all.
    """

    params: Sequence[Mapping[str, Any]]
    values: Sequence[float]
    maximize: bool
    trials: int
    _own: dict[int, tuple[float, bool]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        sign = -1.0 if self.maximize else 1.0
        self._order = sorted(range(len(self.values)), key=lambda index: sign * self.values[index])
        count = min(MOST_REPEATED, self.trials // 8, len(self._order))
        self._repeated = _spread(self._order, count) if count >= LEAST_REPEATED else []

    @property
    def repeated(self) -> Sequence[Mapping[str, Any]]:
        """Return the settings that the first trials repeat, the best one first."""
        return [self.params[index] for index in self._repeated]

    def add(self, params: Mapping[str, Any], value: float | None, *, complete: bool) -> None:
        """Add a finished trial of the sweep; only repeated settings count.

        Args:
            params: Hyperparameters of the trial.
            value: Its value; None for a failed trial, which counts as the worst one.
            complete: Whether the trial has run to its end, so that its value can be compared.
        """
        worst = -math.inf if self.maximize else math.inf
        for index in self._repeated:
            if self.params[index] == params:
                self._own.setdefault(index, (worst if value is None else value, complete))

    @property
    def correlation(self) -> float | None:
        """Return the rank correlation, from -1 to 1; None until all repeated settings but one have ended."""
        if not self._repeated or len(self._own) < len(self._repeated) - 1:
            return None
        known = [index for index in self._repeated if index in self._own]
        return rank_correlation(
            [self.values[index] for index in known], [self._own[index][0] for index in known]
        )

    def shown(self) -> dict[int, float]:
        """Return the earlier trials that a sampler is shown: their translated values by index.

        They are spread evenly over the ranks, so that the share of good ones stays the same. Only complete
        trials determine the line; with fewer than two, nothing is shown.
        """
        if not self._repeated:
            return dict(enumerate(self.values))
        pairs = [
            (self.values[index], self._own[index][0])
            for index in self._repeated
            if index in self._own and self._own[index][1]
        ]
        correlation = self.correlation
        if (
            correlation is None
            or correlation < LEAST_CORRELATION
            or len({earlier for earlier, _ in pairs}) < 2
        ):
            return {}
        earlier, own = np.array(pairs).T
        slope = max(0.0, float(np.cov(earlier, own)[0, 1] / np.var(earlier, ddof=1)))
        count = min(len(self._order), math.ceil(MOST_SHOWN * correlation))
        start = float(own.mean() - slope * earlier.mean())
        return {index: start + slope * self.values[index] for index in _spread(self._order, count)}


def _spread(order: Sequence[int], count: int) -> list[int]:
    """Return `count` elements of a sequence at equal distances, from the first to the last one."""
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
