"""Statistical tests of results: intervals of all differences, and an established winner.

p values are corrected by Holm's method for the number of comparisons. Intervals are simultaneous by
Bonferroni's, which is wider: Holm can establish a difference whose interval just contains zero.

Source: Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6
(1979).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy

from orchestrator.report.noise import Measured, Sample, Variance, difference_of, mean_of, welch

CONFIDENCE = 0.95
"""Probability with which an interval contains the true value."""

LEAST_SEEDS = 3
"""Minimum number of seeds of each sample for a comparison to name a winner."""

POWER = 0.8
"""Probability with which the recommended number of seeds establishes a difference of the measured size."""

MOST_SEEDS = 1000
"""Largest number of seeds that is recommended."""


@dataclass(frozen=True)
class MeanEstimate:
    """A mean with its interval.

    Attributes:
        mean: Mean over seeds.
        low: Lower end of the interval; None if no source of noise is known.
        high: Upper end.
        sources: Sources of noise in the interval: `seeds`, `examples`.
    """

    mean: float
    low: float | None
    high: float | None
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """The mean of one sample minus the mean of another.

    Attributes:
        first: Name of the first sample.
        second: Name of the second sample.
        mean: Difference of the means.
        low: Lower end of the simultaneous interval; None if no source of noise is known.
        high: Upper end.
        p: Two-sided p value, corrected for the number of comparisons; None unless both sources are known.
        paired: Whether both samples have the same examples.
        sources: Sources of noise in the interval: `seeds`, `examples`.
    """

    first: str
    second: str
    mean: float
    low: float | None
    high: float | None
    p: float | None
    paired: bool
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Pairwise comparisons of samples of one metric.

    Attributes:
        differences: Difference of every pair, in the order of the samples.
        confidence: Joint confidence of all intervals.
        winner: Name of the sample that is established to be the best, or None.
        reason: Reason why there is no winner; '' if there is one.
        enough: Number of seeds per sample that would establish differences of the measured size with
            probability `POWER`; None if there is a winner, or if no such number is known.
    """

    differences: tuple[Difference, ...]
    confidence: float
    winner: str | None
    reason: str
    enough: int | None


@dataclass(frozen=True)
class _Pair:
    """Two samples and their difference."""

    samples: tuple[Sample, Sample]
    measured: Measured
    difference: Difference

    def beside(self, sample: Sample) -> Sample:
        """Return the other sample."""
        first, second = self.samples
        return second if sample is first else first


def estimated(sample: Sample) -> MeanEstimate:
    """Return the mean of a sample with its interval, clipped to [0, 1] for shares."""
    measured = mean_of(sample)
    low, high = measured.interval((1 - CONFIDENCE) / 2)
    if sample.share and low is not None and high is not None:
        low, high = max(0.0, low), min(1.0, high)
    return MeanEstimate(measured.mean, low, high, measured.sources)


def against(sample: Sample, figure: float) -> float | None:
    """Return the two-sided p value of a sample's mean against a figure; None for a single seed."""
    measured = mean_of(sample)
    return measured.p_value(figure) if measured.seeds else None


def compared(samples: Sequence[Sample], *, maximize: bool = True, comparisons: int = 1) -> Comparison:
    """Compare all pairs of samples.

        comparison = compared([rotrnn, lru])
        comparison.winner            # "rotrnn", or None with the reason in `comparison.reason`

    The probability of any false difference is at most 1 - `CONFIDENCE`.

    Args:
        samples: Samples of one metric, at least one.
        maximize: Whether a larger mean is better.
        comparisons: Number of differences that share the confidence, if larger than the number of pairs.
    """
    several = max(comparisons, math.comb(len(samples), 2), 1)
    tail = (1 - CONFIDENCE) / 2 / several
    pairs = _pairs(samples, tail, several)
    best = (max if maximize else min)(samples, key=lambda sample: sample.mean)
    rivals = [pair for pair in pairs if best in pair.samples]
    reason, enough = _undecided(best, rivals, tail)
    differences = tuple(pair.difference for pair in pairs)
    return Comparison(differences, CONFIDENCE, None if reason else best.name, reason, enough)


def _pairs(samples: Sequence[Sample], tail: float, several: int) -> list[_Pair]:
    pairs = list(combinations(samples, 2))
    measured = [difference_of(*pair) for pair in pairs]
    known = [index for index, each in enumerate(measured) if each.complete]
    corrected = dict(zip(known, holm([measured[index].p_value() for index in known], several), strict=True))
    differences = [
        Difference(
            first=first.name,
            second=second.name,
            mean=each.mean,
            low=low,
            high=high,
            p=corrected.get(index),
            paired=first.is_paired_with(second),
            sources=each.sources,
        )
        for index, ((first, second), each) in enumerate(zip(pairs, measured, strict=True))
        for low, high in [each.interval(tail)]
    ]
    return [_Pair(*each) for each in zip(pairs, measured, differences, strict=True)]


def holm(p_values: Sequence[float], comparisons: int) -> list[float]:
    """Return p values corrected by Holm's method; `comparisons` may exceed the number of p values."""
    corrected, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (comparisons - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def _undecided(best: Sample, rivals: Sequence[_Pair], tail: float) -> tuple[str, int | None]:
    """Return the reason why the best sample does not win, or '', and the number of seeds needed."""
    if not rivals:
        return "it has nothing to be compared with", None
    samples = [best, *(pair.beside(best) for pair in rivals)]
    if few := [sample.name for sample in samples if sample.seeds < LEAST_SEEDS]:
        return f"fewer than {LEAST_SEEDS} seeds of {', '.join(few)}", None
    if unknown := [sample.name for sample in samples if sample.scores is None]:
        return f"the scores of the examples are not recorded for {', '.join(unknown)}", None
    if other := [pair.beside(best).name for pair in rivals if not pair.difference.paired]:
        return f"other data than {best.name}: {', '.join(other)}", None
    close = [pair for pair in rivals if pair.difference.p is None or pair.difference.p > 1 - CONFIDENCE]
    if not close:
        return "", None
    names = ", ".join(pair.beside(best).name for pair in close)
    reason = f"{best.name} is not established to differ from {names}"
    needed = [seeds_needed(pair.measured, tail) for pair in close]
    if None in needed:
        return f"{reason}, and with these examples not even {MOST_SEEDS:,} seeds would be enough", None
    return reason, max(count for count in needed if count is not None)


def seeds_needed(measured: Measured, tail: float) -> int | None:
    """Return the smallest number of seeds per sample with `POWER`, or None if it exceeds `MOST_SEEDS`.

    The mean and the variances are assumed to be the true ones.

    Args:
        measured: Difference of two samples.
        tail: Probability on each side of the interval that must not contain zero.
    """
    if power(measured, MOST_SEEDS, tail) < POWER:
        return None
    low, high = LEAST_SEEDS - 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(measured, middle, tail) >= POWER else (middle, high)
    return high


_QUANTILES = (np.arange(200) + 0.5) / 200


def power(measured: Measured, seeds: int, tail: float) -> float:
    """Return the probability that so many seeds per sample establish a difference; see `seeds_needed`."""
    assert measured.seeds, "the variance over seeds is known"
    assert measured.examples, "the variance over examples is known"
    per_seed = [each.value * (each.degrees + 1) for each in measured.seeds]
    over_seeds = welch([Variance(value / seeds, seeds - 1) for value in per_seed])
    examples = measured.examples
    # The estimated variance over seeds is a multiple of chi-squared; that over examples hardly varies.
    factors = scipy.special.chdtri(over_seeds.degrees, _QUANTILES) / over_seeds.degrees
    squares = scipy.special.stdtrit(over_seeds.degrees, tail) ** 2 * over_seeds.value * factors
    half = np.sqrt(squares + scipy.special.stdtrit(examples.degrees, tail) ** 2 * examples.value)
    error = math.sqrt(over_seeds.value + examples.value)
    if error == 0.0:
        return float(measured.mean != 0.0)
    return float(np.mean(scipy.special.ndtr((abs(measured.mean) - half) / error)))
