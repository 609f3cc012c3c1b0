"""Which of two arms is better: Welch's test over the values of their seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from orchestrator.report import words

LEVEL = 0.05
"""Probability of claiming any difference of an experiment where there is none."""


@dataclass(frozen=True)
class Difference:
    """The mean of the first arm minus that of the second.

    Attributes:
        mean: over the seeds of both.
        low: lower end of the interval; None with fewer than two seeds of an arm.
        high: upper end.
        p: two-sided p value, corrected for the number of comparisons; None likewise.
        first_leads: whether the first arm is the better one, as far as is measured.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    first_leads: bool

    @property
    def is_established(self) -> bool:
        """Return True if chance does not explain the difference at the level `LEVEL`."""
        return self.p is not None and self.p <= LEVEL

    @property
    def reason(self) -> str:
        """Return why no difference is established; '' if one is."""
        if self.is_established:
            return ""
        return "a single seed" if self.p is None else f"p = {self.p:.2g}"

    @property
    def phrase(self) -> str:
        """Return the difference with its interval."""
        if self.low is None or self.high is None:
            return words.setting(self.mean)
        ends = f"{words.setting(self.low)} to {words.setting(self.high)}"
        return f"{words.setting(self.mean)} ({ends}; p = {self.p:.2g})"


def difference(
    first: Sequence[float], second: Sequence[float], *, maximize: bool, comparisons: int = 1
) -> Difference:
    """Compare two arms by the values of their seeds.

    Args:
        first: values by seed of the one arm, at least one.
        second: likewise of the other.
        maximize: whether a higher value is better.
        comparisons: how many differences of the experiment share `LEVEL`, by Bonferroni.
    """
    mean = float(np.mean(first) - np.mean(second))
    leads = mean > 0 if maximize else mean < 0
    if min(len(first), len(second)) < 2:
        return Difference(mean, None, None, None, leads)
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (first, second)]
    error = math.sqrt(sum(parts))
    if error == 0.0:
        return Difference(mean, mean, mean, 1.0 if mean == 0.0 else 0.0, leads)
    degrees = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True)
    )
    half = -float(stdtrit(degrees, LEVEL / 2 / comparisons)) * error
    p = min(1.0, comparisons * 2.0 * float(stdtr(degrees, -abs(mean) / error)))
    return Difference(mean, mean - half, mean + half, p, leads)
