"""Whether a difference means anything: two tests, each named where its result is told.

Source: Student, "The Probable Error of a Mean", Biometrika 6, 1908, for a mean over seeds against a published
figure; the pooled two-proportion z test for two accuracies on samples of one size. The latter takes the two
trials' answers as independent although both saw the same examples, and so errs on the side of doubt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtr

LEVEL = 0.05
"""The largest p value that is called a difference."""


@dataclass(frozen=True)
class Spread:
    """A value over several seeds: mean and sample standard deviation, the latter None for a single seed."""

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
        """Tell whether the difference is more than chance explains."""
        return self.p <= LEVEL


def spread(values: Sequence[float]) -> Spread:
    """Return mean and standard deviation of at least one value."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(len(values), float(np.mean(values)), deviation)


def against_figure(values: Sequence[float], figure: float) -> Verdict | None:
    """Verdict a mean over seeds against one published figure; None for fewer than two seeds."""
    seen = spread(values)
    if seen.deviation is None:
        return None
    error = seen.deviation / math.sqrt(seen.count)
    if error == 0.0:
        return Verdict("one-sample t test", 1.0 if seen.mean == figure else 0.0)
    t = abs(seen.mean - figure) / error
    return Verdict("one-sample t test", 2.0 * float(stdtr(seen.count - 1, -t)))


def between_accuracies(one: float, other: float, examples: int) -> Verdict:
    """Verdict two accuracies, each on `examples` examples, against each other."""
    pooled = (one + other) / 2
    error = math.sqrt(2 * pooled * (1 - pooled) / examples)
    if error == 0.0:
        return Verdict("two-proportion z test", 1.0)
    return Verdict("two-proportion z test", 2.0 * float(ndtr(-abs(one - other) / error)))
