"""Population based training: the worst go on from a better trial's checkpoint, with other hyperparameters.

Source: Jaderberg et al., Population Based Training of Neural Networks (2017), section 4.1 (truncation
selection; perturb or resample).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.config.space import Distribution


@dataclass(frozen=True)
class Mutation:
    """How a trial's hyperparameters change when it takes over another's state.

    Attributes:
        names: of the hyperparameters that change.
        resample: chance of a fresh draw instead of a step.
        factors: what a step multiplies by, one of the two.
    """

    names: Sequence[str]
    resample: float
    factors: tuple[float, float]

    def applied(
        self, params: Mapping[str, Any], space: Mapping[str, Distribution], chance: random.Random
    ) -> dict[str, Any]:
        """Return the hyperparameters of the donor with some of them changed, all within the space."""
        changed = dict(params)
        for name in self.names:
            if name in changed:
                fresh = chance.random() < self.resample
                change = _drawn if fresh else self._stepped
                changed[name] = change(space[name], chance, changed[name])
        return changed

    def _stepped(self, distribution: Distribution, chance: random.Random, value: Any) -> Any:
        if distribution.kind == "choice":
            return _neighbour(distribution.choices, chance, value)
        return _within(distribution, value * chance.choice(self.factors))


def _drawn(distribution: Distribution, chance: random.Random, value: Any) -> Any:
    if distribution.kind == "choice":
        return chance.choice(distribution.choices)
    low, high = distribution.ends()
    if distribution.kind == "log_uniform":
        return _within(distribution, math.exp(chance.uniform(math.log(low), math.log(high))))
    return _within(distribution, chance.uniform(low, high))


def _neighbour(choices: Sequence[Any], chance: random.Random, value: Any) -> Any:
    place = choices.index(value) + chance.choice((-1, 1))
    return choices[min(max(place, 0), len(choices) - 1)]


def _within(distribution: Distribution, value: float) -> float:
    """Return the value next to `value` that the distribution can draw."""
    low, high = distribution.ends()
    if distribution.step:
        value = low + round((value - low) / distribution.step) * distribution.step
    return min(max(value, low), high)


class Population:
    """The scores of all trials, compared at equal steps.

    Args:
        period: steps between two comparisons of a trial.
        quantile: share that is replaced, and share that is copied.
        sign: 1 if more is better, else -1.
    """

    def __init__(self, period: int, quantile: float, sign: int) -> None:
        self._period, self._quantile, self._sign = period, quantile, sign
        self._scores: dict[int, dict[str, float]] = {}

    def better(self, key: str, step: int, value: float) -> list[str]:
        """Note a score; return whom its trial should go on from, the best first, or nobody if it may stay."""
        if step % self._period:
            return []
        scores = self._scores.setdefault(step, {})
        scores[key] = self._sign * value
        ranked = sorted(scores, key=lambda name: scores[name], reverse=True)
        share = min(math.ceil(len(ranked) * self._quantile), len(ranked) // 2)
        return ranked[:share] if key in ranked[len(ranked) - share :] else []
