"""The difference of two arms, and whether their seeds and test examples establish it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from orchestrator.report import words
from orchestrator.report.noise import Measured, Sample, Variance, mean_of, welch
from orchestrator.report.statistics import CONFIDENCE, LEAST_SEEDS, compared, detectable, estimated


@dataclass(frozen=True)
class Ordering:
    """The mean of one arm minus the mean of another, and the better arm if there is one.

    Attributes:
        mean: Difference of the means.
        low: Lower end of its interval; None if no source of noise is known.
        high: Upper end.
        p: Two-sided p value, corrected for the number of claims; None if unknown.
        winner: Name of the arm that is established to be better, or None.
        reason: Reason why none is the winner; '' with a winner.
        sources: Sources of noise in the interval: `seeds` or `paired seeds`, `examples`.
        detectable: Smallest difference that seeds and examples could establish with a probability of 80 %;
            None if there is a winner, or if the noise is unknown.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    winner: str | None
    reason: str
    sources: tuple[str, ...]
    detectable: float | None = None

    @property
    def phrase(self) -> str:
        """The difference with its interval and the sources of noise in it."""
        if self.low is None or self.high is None:
            return words.setting(self.mean)
        p = "" if self.p is None else f"p = {self.p:.2g}; "
        ends = f"{words.setting(self.low)} to {words.setting(self.high)}"
        return f"{words.setting(self.mean)} ({ends}; {p}noise of {' and '.join(self.sources)})"

    @property
    def why(self) -> str:
        """The reason why none is the winner, and the smallest difference that would have been established."""
        if self.detectable is None:
            return self.reason
        return f"{self.reason}; a difference of {words.setting(self.detectable)} would be, in 80 % of cases"


def ordering(
    first: Sample,
    second: Sample,
    *,
    maximize: bool,
    comparisons: int = 1,
    paired: bool = False,
    scored: bool = False,
) -> Ordering:
    """Compare two arms.

    With scores of test examples, the noise of seeds and of examples counts. Values without such scores, such
    as norms of hidden states or a loss, are compared over seeds only. If scores that should exist are
    missing, there is no winner.

    Args:
        first: Results of the first arm.
        second: Results of the second arm.
        maximize: Whether a higher value is better.
        comparisons: Number of claims that share the confidence.
        paired: Whether both have the same seeds in the same order, and share the random draws of a seed.
        scored: Whether the metric is a mean over test examples whose scores are recorded.
    """
    if unlike := _unlike(first, second, scored=scored):
        return Ordering(first.mean - second.mean, None, None, None, None, unlike, ())
    if paired:
        return _over_pairs(first, second, maximize=maximize, comparisons=comparisons)
    if first.scores is None or second.scores is None:
        return _over_seeds(first, second, maximize=maximize, comparisons=comparisons)
    comparison = compared([first, second], maximize=maximize, comparisons=comparisons)
    (pair,) = comparison.differences
    return Ordering(
        mean=pair.mean,
        low=pair.low,
        high=pair.high,
        p=pair.p,
        winner=comparison.winner,
        reason=comparison.reason,
        sources=pair.sources,
        detectable=comparison.detectable,
    )


def _unlike(first: Sample, second: Sample, *, scored: bool) -> str:
    """Return the reason why two arms cannot be compared; '' if they can."""
    both = (first, second)
    if wrong := [sample.name for sample in both if not np.isfinite(sample.values).all()]:
        return f"a value of {' and of '.join(wrong)} is not finite"
    if first.data and second.data and not first.is_paired_with(second):
        return "the two arms have different data"
    if scored and (unknown := [sample.name for sample in both if sample.scores is None]):
        return f"the scores of the test examples are not recorded for {', '.join(unknown)}"
    return ""


def _over_seeds(first: Sample, second: Sample, *, maximize: bool, comparisons: int) -> Ordering:
    """Compare two arms by Welch's test over their seeds, with Bonferroni's correction."""
    mean, fewest = first.mean - second.mean, min(first.seeds, second.seeds)
    if fewest < 2:
        return _of_single_seed(mean)
    noise = tuple(_variance(sample.values) for sample in (first, second))
    leads = first if (mean > 0) == maximize else second
    return _by_t(mean, noise, leads.name, comparisons, "seeds", fewest)


def _over_pairs(first: Sample, second: Sample, *, maximize: bool, comparisons: int) -> Ordering:
    """Compare two arms by the t-test of their differences by seed, with Bonferroni's correction."""
    both = min(first.seeds, second.seeds)  # fewer than asked for while an arm is being measured
    differences = first.values[:both] - second.values[:both]
    mean = float(np.mean(differences))
    if both < 2:
        return _of_single_seed(mean)
    leads = first if (mean > 0) == maximize else second
    return _by_t(mean, (_variance(differences),), leads.name, comparisons, "paired seeds", both)


def _variance(values: np.ndarray) -> Variance:
    """Return the variance of the mean of values (S,)."""
    return Variance(float(np.var(values, ddof=1)) / len(values), len(values) - 1)


def _of_single_seed(mean: float) -> Ordering:
    return Ordering(mean, None, None, None, None, "a single seed has no noise to compare with", ())


def _by_t(
    mean: float, noise: tuple[Variance, ...], leads: str, comparisons: int, source: str, fewest: int
) -> Ordering:
    """Test a difference by Student's t; `leads` is the arm with the better mean.

    The variances of `noise` add up to the variance of the difference. Equal seeds show no noise, so they
    establish nothing about other seeds.
    """
    total, tail = welch(noise), (1 - CONFIDENCE) / 2 / comparisons
    error = math.sqrt(total.value)
    if error == 0.0:
        return Ordering(mean, None, None, None, None, "equal seeds show no noise to compare with", ())
    half = -float(scipy.special.stdtrit(total.degrees, tail)) * error
    low, high = mean - half, mean + half
    p = min(1.0, comparisons * 2.0 * float(scipy.special.stdtr(total.degrees, -abs(mean) / error)))
    if fewest < LEAST_SEEDS:
        return Ordering(mean, low, high, p, None, f"fewer than {LEAST_SEEDS} seeds of an arm", (source,))
    if p <= 1 - CONFIDENCE:
        return Ordering(mean, low, high, p, leads, "", (source,))
    smallest = detectable(Measured(mean, mean, noise, None), tail)
    return Ordering(
        mean, low, high, p, None, f"no difference is established, p = {p:.2g}", (source,), smallest
    )


def interval_of(sample: Sample) -> tuple[float, float] | None:
    """Return the interval of a mean with the noise of seeds and test examples, if both are known."""
    if not mean_of(sample).complete:
        return None
    found = estimated(sample)
    assert found.low is not None
    assert found.high is not None
    return float(found.low), float(found.high)
