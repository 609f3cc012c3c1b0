"""Statistical tests of a difference: each result carries the name of its test.

Source: Student, "The Probable Error of a Mean", Biometrika 6, 1908, for a mean over seeds against a published
figure; the pooled two-proportion z test for two accuracies on samples of one size. The z test treats the
answers of two trials as independent although both saw the same examples, which makes it conservative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtr

LEVEL = 0.05
"""The largest p value that counts as a difference."""


@dataclass(frozen=True)
class Spread:
    """A value over several seeds: mean and sample standard deviation, which is None for a single seed."""

    count: int
    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Verdict:
    """The result of a test: its name and its two-sided p value."""

    name: str
    p: float

    @property
    def differs(self) -> bool:
        """Whether the difference is larger than chance explains at the level `LEVEL`."""
        return self.p <= LEVEL


def spread(values: Sequence[float]) -> Spread:
    """Return the mean and the standard deviation of at least one value."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(len(values), float(np.mean(values)), deviation)


def against_figure(values: Sequence[float], figure: float) -> Verdict | None:
    """Compare a mean over seeds with a published value; return None for fewer than two seeds."""
    seeds = spread(values)
    if seeds.deviation is None:
        return None
    error = seeds.deviation / math.sqrt(seeds.count)
    if error == 0.0:
        return Verdict("one-sample t test", 1.0 if seeds.mean == figure else 0.0)
    t = abs(seeds.mean - figure) / error
    return Verdict("one-sample t test", 2.0 * float(stdtr(seeds.count - 1, -t)))


def between_accuracies(one: float, other: float, examples: int) -> Verdict:
    """Compare two accuracies, each measured on `examples` examples."""
    pooled = (one + other) / 2
    error = math.sqrt(2 * pooled * (1 - pooled) / examples)
    if error == 0.0:
        return Verdict("two-proportion z test", 1.0)
    return Verdict("two-proportion z test", 2.0 * float(ndtr(-abs(one - other) / error)))
