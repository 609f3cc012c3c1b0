"""Which of two arms is better, as far as the values of their seeds and test examples support it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from orchestrator.report import words
from orchestrator.report.noise import Sample
from orchestrator.report.statistics import CONFIDENCE, compared


@dataclass(frozen=True)
class Ordering:
    """The mean of one arm minus that of another, and which of the two is better.

    Attributes:
        mean: the difference.
        low: lower end of its interval; None if no source of noise is known.
        high: upper end.
        p: two-sided p value, corrected for the number of claims; None if it is not known.
        winner: name of the arm that is established to be better, or None.
        reason: why there is no winner; '' if there is one.
        sources: the sources of noise that the interval contains: `seeds`, `examples`.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    winner: str | None
    reason: str
    sources: tuple[str, ...]

    @property
    def phrase(self) -> str:
        """Return the difference with its interval and the noise that it contains."""
        if self.low is None or self.high is None:
            return words.setting(self.mean)
        p = "" if self.p is None else f"p = {self.p:.2g}; "
        ends = f"{words.setting(self.low)} to {words.setting(self.high)}"
        return f"{words.setting(self.mean)} ({ends}; {p}noise of {' and '.join(self.sources)})"


def ordering(first: Sample, second: Sample, *, maximize: bool, comparisons: int = 1) -> Ordering:
    """Compare two arms.

    With the scores of single test examples, both sources of noise count; values without examples, such as
    norms of hidden states or a loss, are compared over seeds alone.

    Args:
        first: results of the one arm.
        second: of the other.
        maximize: whether a higher value is better.
        comparisons: number of claims that share the confidence.
    """
    if first.scores is None or second.scores is None:
        return _over_seeds(first, second, maximize=maximize, comparisons=comparisons)
    comparison = compared([first, second], maximize=maximize, comparisons=comparisons)
    (each,) = comparison.differences
    return Ordering(
        each.mean, each.low, each.high, each.p, comparison.winner, comparison.reason, each.sources
    )


def _over_seeds(first: Sample, second: Sample, *, maximize: bool, comparisons: int) -> Ordering:
    """Compare two arms by Welch's test over their seeds, with Bonferroni's correction."""
    mean = first.mean - second.mean
    if min(first.seeds, second.seeds) < 2:
        return Ordering(mean, None, None, None, None, "a single seed has no noise to compare with", ())
    parts = [float(np.var(sample.values, ddof=1)) / sample.seeds for sample in (first, second)]
    error = math.sqrt(sum(parts))
    if error == 0.0:
        low, high, p = mean, mean, 1.0 if mean == 0.0 else 0.0
    else:
        degrees = sum(parts) ** 2 / sum(
            part**2 / (sample.seeds - 1) for part, sample in zip(parts, (first, second), strict=True)
        )
        half = -float(stdtrit(degrees, (1 - CONFIDENCE) / 2 / comparisons)) * error
        low, high = mean - half, mean + half
        p = min(1.0, comparisons * 2.0 * float(stdtr(degrees, -abs(mean) / error)))
    leads = first if (mean > 0) == maximize else second
    if p <= 1 - CONFIDENCE:
        return Ordering(mean, low, high, p, leads.name, "", ("seeds",))
    return Ordering(mean, low, high, p, None, f"no difference is established, p = {p:.2g}", ("seeds",))
