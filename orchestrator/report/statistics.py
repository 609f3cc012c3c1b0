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

import scipy

from orchestrator.report.noise import Measured, Sample, difference_of, half_width, mean_of

CONFIDENCE = 0.95
"""Probability with which an interval contains the true value."""

LEAST_SEEDS = 3
"""Minimum number of seeds of each sample for a comparison to name a winner."""

POWER = 0.8
"""Probability with which the smallest detectable difference is established."""


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
        reason: Reason why none is the winner; '' with a winner.
        detectable: Smallest difference from the best sample that the seeds and examples could establish with
            probability `POWER`, of the noisiest pair; None if there is a winner, or if the noise is unknown.
    """

    differences: tuple[Difference, ...]
    confidence: float
    winner: str | None
    reason: str
    detectable: float | None


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
    """Return the mean of a sample with its interval, clipped to the bounds of its values."""
    measured, (least, most) = mean_of(sample), sample.bounds
    low, high = measured.interval((1 - CONFIDENCE) / 2)
    if low is not None and high is not None:
        low, high = max(least, low), min(most, high)
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
    reason, smallest = _undecided(best, rivals, tail)
    differences = tuple(pair.difference for pair in pairs)
    return Comparison(differences, CONFIDENCE, None if reason else best.name, reason, smallest)


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
        for low, high in [_within(each.interval(tail), 1.0 if first.share else math.inf)]
    ]
    return [_Pair(*each) for each in zip(pairs, measured, differences, strict=True)]


def _within(ends: tuple[float | None, float | None], most: float) -> tuple[float | None, float | None]:
    """Return the interval of a difference of values that lie between 0 and `most`."""
    low, high = ends
    return None if low is None else max(-most, low), None if high is None else min(most, high)


def holm(p_values: Sequence[float], comparisons: int) -> list[float]:
    """Return p values corrected by Holm's method; `comparisons` may exceed the number of p values."""
    corrected, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (comparisons - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def _undecided(best: Sample, rivals: Sequence[_Pair], tail: float) -> tuple[str, float | None]:
    """Return the reason why the best sample does not win, or '', and the detectable difference."""
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
    return reason, max(detectable(pair.measured, tail) for pair in close)


def detectable(measured: Measured, tail: float) -> float:
    """Return the smallest true difference that a design establishes with probability `POWER`.

    It follows from the number of seeds and the noise alone, not from the measured difference.

    Args:
        measured: Difference of two samples, with the noise of at least one source.
        tail: Probability on each side of the interval that must not contain zero.

    Source: Bloom, Minimum detectable effects, Evaluation Review 19 (1995), equation 2.
    """
    return half_width(measured.variances, tail) + half_width(measured.variances, 1 - POWER)


def sign_p(successes: int, trainings: int) -> float:
    """Return the p value against the hypothesis that at most half of all trainings succeed.

    It is exact for every distribution. Five of five successes give p = 0.031, four of four give 0.063.

    Source: the sign test, Conover, Practical Nonparametric Statistics (1999), section 3.4.
    """
    return float(scipy.special.bdtrc(successes - 1, trainings, 0.5)) if successes else 1.0


def share_interval(successes: int, trainings: int) -> tuple[float, float]:
    """Return the exact interval of a share of trainings, with confidence `CONFIDENCE`.

    Source: Clopper & Pearson, Biometrika 26 (1934).
    """
    tail, failures = (1 - CONFIDENCE) / 2, trainings - successes
    low = float(scipy.special.betaincinv(successes, failures + 1, tail)) if successes else 0.0
    high = float(scipy.special.betaincinv(successes + 1, failures, 1 - tail)) if failures else 1.0
    return low, high


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return an interval of the median over all seeds, and its confidence, from at least one value.

    Its ends are values of seeds, so it stays within the bounds of the values. It is the narrowest one with a
    confidence of at least `CONFIDENCE`; where that needs an odd number of values to be left out, one more is
    left out at the top. Fewer than six seeds have none: the ends are then the smallest and the largest value,
    with a confidence of 75 % for three seeds and 93.75 % for five.

    Source: Conover, Practical Nonparametric Statistics (1999), section 3.2.
    """
    ranked, count = sorted(values), len(values)
    cuts = [(cut // 2, (cut + 1) // 2) for cut in range(count)]
    bottom, top = max(
        (cut for cut in cuts if _missed(*cut, count) <= 1 - CONFIDENCE), default=(0, 0), key=sum
    )
    return ranked[bottom], ranked[count - 1 - top], max(0.0, 1 - _missed(bottom, top, count))


def _missed(bottom: int, top: int, count: int) -> float:
    """Return the probability that the median lies outside after values are left out at both ends."""
    return float(sum(scipy.special.bdtr(cut, count, 0.5) for cut in (bottom, top)))
