"""Tuning curves: the best of k random trials, with exact simultaneous bands.

The best of k independent trials has the distribution F^k, where F is the distribution of one trial's value.
Its median is the quantile 0.5^(1/k) of F. A band that contains all of F gives a band that contains the whole
curve. F is unknown, but F at the i-th smallest of n values is distributed as the i-th smallest of n uniform
numbers, which is Beta(i, n + 1 - i). The band is an interval of equal tails for each i, with the one tail
probability for which all intervals hold simultaneously with the wanted confidence.

Source: Lourie, Cho and He, Show Your Work with Confidence: Confidence Bands for Tuning Curves, NAACL (2024);
Noe, The calculation of distributions of two-sided Kolmogorov-Smirnov type statistics, The Annals of
Mathematical Statistics 43 (1972).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.errors import counted
from orchestrator.ledger.sweeps.records import CANDIDATE, FINISHED_TRIAL, TrialRecord
from orchestrator.report.history import History
from orchestrator.report.statistics import CONFIDENCE, POWER

LEAST_TRIALS = 8
"""Number of trials from which a curve is drawn; bands of fewer trials hardly exclude anything."""

BUDGETS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Numbers of trials that are considered for a claim."""

DRAWS = 200
"""Simulated pairs of sweeps for each number of trials."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class TuningCurve:
    """The median of the best of k trials, for k from 1 to the number of trials.

    Attributes:
        name: ID of the sweep.
        trials: Number of trials that were spent, failed ones included.
        failed: Number of trials without a value; they count as worse than every other.
        median: Estimated median; NaN where most draws of k trials have no value.
        low: Lower end of the band; -inf where nothing excludes a lower value.
        high: Upper end of the band; inf where nothing excludes a higher value.
    """

    name: str
    trials: int
    failed: int
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class TuningDifference:
    """Two tuning curves and whether their bands separate.

    Attributes:
        better: Name of the better sweep where the bands do not overlap, or None.
        budgets: First and last number of trials at which the bands do not overlap, or None.
    """

    first: str
    second: str
    better: str | None
    budgets: tuple[int, int] | None


@dataclass(frozen=True)
class Claim:
    """The effort that establishes a difference of a given size between two methods like these.

    Attributes:
        difference: Difference between the values of the methods.
        trials: Number of trials of each method whose bands would separate with probability `POWER`; None if
            it exceeds the largest of `BUDGETS`.
        sweeps: Number of sweeps of each method whose best values would differ with that probability, each as
            long as the shorter one of these.
    """

    difference: float
    trials: int | None
    sweeps: int


@dataclass(frozen=True)
class TuningComparison:
    """Tuning curves of sweeps of one metric.

    Attributes:
        metric: Metric of the curves.
        maximize: Whether larger values are better.
        confidence: Joint confidence of all bands.
        claims: Effort for differences of several sizes; empty for one sweep.
        declined: Reason for each sweep without a curve, by ID.
    """

    metric: str
    maximize: bool
    confidence: float
    curves: tuple[TuningCurve, ...]
    differences: tuple[TuningDifference, ...]
    claims: tuple[Claim, ...] = ()
    declined: Mapping[str, str] = field(default_factory=dict)


def tuning_of(histories: Sequence[History]) -> tuple[TuningComparison, ...]:
    """Compare the tuning curves of sweeps, apart for each task and metric.

    A curve needs independent draws: random settings that all ran to their end. The published setting of a
    file was not drawn and is left out. A sweep with other trials is declined with the reason.
    """
    groups: dict[tuple[str, str, bool], list[History]] = {}
    for history in {history.sweep.id: history for history in histories}.values():
        groups.setdefault((history.sweep.task, history.metric, history.maximize), []).append(history)
    return tuple(
        replace(
            tuning(values, metric=metric, maximize=maximize),
            claims=tuple(claims(list(values.values()), maximize=maximize)),
            declined={each.sweep.id: reason for each in group if (reason := why_dependent(each))},
        )
        for (_, metric, maximize), group in groups.items()
        for values in [{each.sweep.id: _values(each) for each in group if not why_dependent(each)}]
    )


def why_dependent(history: History) -> str:
    """Return the reason why the trials of a sweep are not independent draws; '' if they are."""
    (sampler,), (scheduler,) = history.sweep.document["sampler"], history.sweep.document["scheduler"]
    unfinished = sum(trial.state not in FINISHED_TRIAL for trial in _draws(history))
    if sampler != "random":
        return f"its sampler, {sampler}, chooses trials by earlier ones: search with `sampler: random`"
    if scheduler != "none":
        return f"its scheduler, {scheduler}, ends trials before their values are known: use `scheduler: none`"
    if unfinished:
        return f"{counted(unfinished, 'trial')} of it {'has' if unfinished == 1 else 'have'} not ended"
    if len(_draws(history)) < LEAST_TRIALS:
        return f"it has fewer than {LEAST_TRIALS} random trials"
    return ""


def _draws(history: History) -> list[TrialRecord]:
    """Return the trials whose settings were drawn, without what an extension has added."""
    first = 1 if history.sweep.document.get("published") else 0
    return [trial.as_searched() for trial in history.search() if trial.number >= first]


def _values(history: History) -> list[float]:
    return [
        math.nan if trial.state not in CANDIDATE or trial.value is None else trial.value
        for trial in _draws(history)
    ]


def tuning(
    values: Mapping[str, Sequence[float]], *, metric: str, maximize: bool, confidence: float = CONFIDENCE
) -> TuningComparison:
    """Compare sweeps of independent random trials by their tuning curves.

    Two methods differ where the bands of their curves do not overlap. The bands hold together, so equal
    methods are called different with a probability of at most 1 - `confidence`.

    Args:
        values: Value of every trial, NaN without one, by sweep.
        metric: Metric of the values.
        maximize: Whether larger values are better.
        confidence: Joint confidence of all bands.
    """
    sign = 1.0 if maximize else -1.0
    level = _confidence_of_each(confidence, len(values))
    curves = {name: _curve(name, _scores(each, sign), level) for name, each in values.items()}
    return TuningComparison(
        metric,
        maximize,
        confidence,
        tuple(_signed(curve, sign) for curve in curves.values()),
        tuple(_difference(curves[first], curves[second]) for first, second in combinations(curves, 2)),
    )


def _confidence_of_each(confidence: float, count: int) -> float:
    """Return the confidence of each of several bands that hold together (Bonferroni)."""
    return 1 - (1 - confidence) / max(1, count)


def _scores(values: Sequence[float], sign: float) -> Values:
    """Return the values in ascending order, larger is better; trials without a value come first."""
    scores = sign * np.asarray(values, np.float64)
    return np.sort(np.where(np.isfinite(scores), scores, -np.inf))


def _curve(name: str, scores: Values, confidence: float) -> TuningCurve:
    count = len(scores)
    low, high = band(count, confidence)
    quantiles = 0.5 ** (1.0 / np.arange(1, count + 1))
    # F is between `low[i]` and `high[i + 1]` from the i-th value to the next one.
    median = scores[np.searchsorted(np.arange(1, count + 1) / count, quantiles - 1e-12)]
    lower = np.concatenate([[-np.inf], scores])[np.searchsorted(np.concatenate([high, [1.0]]), quantiles)]
    upper = np.concatenate([scores, [np.inf]])[np.searchsorted(low, quantiles)]
    return TuningCurve(
        name,
        count,
        int(np.sum(np.isneginf(scores))),
        tuple(np.where(np.isneginf(median), np.nan, median).tolist()),
        tuple(lower.tolist()),
        tuple(upper.tolist()),
    )


def _signed(curve: TuningCurve, sign: float) -> TuningCurve:
    """Return a curve of scores in the direction of its values."""
    if sign > 0:
        return curve
    low, high = (tuple(-value for value in values) for values in (curve.high, curve.low))
    return TuningCurve(
        curve.name, curve.trials, curve.failed, tuple(-value for value in curve.median), low, high
    )


def _difference(first: TuningCurve, second: TuningCurve) -> TuningDifference:
    for better, worse in ((first, second), (second, first)):
        apart = [
            k for k, (low, high) in enumerate(zip(better.low, worse.high, strict=False), 1) if low > high
        ]
        if apart:
            return TuningDifference(first.name, second.name, better.name, (apart[0], apart[-1]))
    return TuningDifference(first.name, second.name, None, None)


@cache
def band(count: int, confidence: float = CONFIDENCE) -> tuple[Values, Values]:
    """Return simultaneous bounds of the order statistics of uniform numbers.

    Args:
        count: Number n of independent uniform numbers.
        confidence: Probability that all of them are within their bounds.

    Returns:
        Lower and upper bounds, ascending, of shape (n,).
    """
    ranks = np.arange(1, count + 1)

    def bounds(tail: float) -> tuple[Values, Values]:
        inverse = scipy.special.betaincinv
        return inverse(ranks, count + 1 - ranks, tail), inverse(ranks, count + 1 - ranks, 1 - tail)

    # All hold together with at least 1 - 2 n tail (Bonferroni) and at most 1 - 2 tail (one of them alone).
    smallest, largest = (1 - confidence) / (2 * count), (1 - confidence) / 2
    while largest / smallest > 1 + 1e-4:
        tail = math.sqrt(smallest * largest)
        if inside(*bounds(tail)) >= confidence:
            smallest = tail
        else:
            largest = tail
    return bounds(smallest)


def inside(low: Values, high: Values) -> float:
    """Return the probability that the order statistics of uniform numbers are within their bounds.

    The number of uniform numbers below t is a Poisson process of rate n on the condition that it ends at n.
    The process is followed from bound to bound, and its counts that break a bound are dropped.

    Args:
        low: Lower bounds, ascending, of shape (n,).
        high: Upper bounds, ascending, of shape (n,).
    """
    count = len(low)
    times = np.unique(np.concatenate([low, high, [1.0]]))
    least = np.searchsorted(high, times, side="right")
    most = np.searchsorted(low, times, side="left")
    first, counts, before = 0, np.ones(1), 0.0
    for time, fewest, largest in zip(times.tolist(), least.tolist(), most.tolist(), strict=True):
        if fewest > largest:
            return 0.0
        steps = np.arange(largest - first + 1)
        mean = count * (time - before)
        chances = np.exp(scipy.special.xlogy(steps, mean) - mean - scipy.special.gammaln(steps + 1))
        spread = np.convolve(counts, chances)[: largest - first + 1]
        first, counts, before = fewest, spread[fewest - first :], time
    ends = math.exp(count * math.log(count) - count - math.lgamma(count + 1))
    return float(counts[count - first] / ends) if len(counts) > count - first else 0.0


def claims(values: Sequence[Sequence[float]], *, maximize: bool) -> list[Claim]:
    """Return the effort to establish differences of 2, 5 and 10 % of the range between the outer deciles.

    The simulated methods draw from all values together and differ by a shift. The random numbers are the same
    in each call, so that a comparison repeats its figures.

    Args:
        values: Value of every trial, NaN without one, of each sweep; at least two sweeps.
        maximize: Whether larger values are better.
    """
    if len(values) < 2:
        return []
    pool = _scores([value for each in values for value in each], 1.0 if maximize else -1.0)
    finite = pool[np.isfinite(pool)]
    spread = float(np.subtract(*np.quantile(finite, (0.9, 0.1)))) if len(finite) else 0.0
    if spread == 0.0:
        return []
    bests = np.random.default_rng(0).choice(pool, (DRAWS, min(map(len, values)))).max(axis=1)
    variance = float(np.var(bests[np.isfinite(bests)], ddof=1))
    normal = scipy.special.ndtri(1 - (1 - CONFIDENCE) / 2) + scipy.special.ndtri(POWER)
    confidence = _confidence_of_each(CONFIDENCE, len(values))
    return [
        Claim(
            difference,
            _trials_needed(pool, difference, confidence),
            max(2, math.ceil(2 * variance * (normal / difference) ** 2)),
        )
        for difference in (float(f"{spread * share:.1g}") for share in (0.02, 0.05, 0.1))
    ]


def _trials_needed(pool: Values, difference: float, confidence: float) -> int | None:
    """Return the number of trials of each method for which the bands separate with probability `POWER`."""
    for count in BUDGETS:
        pairs = np.random.default_rng(count).choice(pool, (DRAWS, 2, count))
        pairs[:, 1] += difference
        found = sum(
            _difference(_curve("first", one, confidence), _curve("second", other, confidence)).better
            == "second"
            for one, other in np.sort(pairs, axis=2)
        )
        if found >= POWER * DRAWS:
            return count
    return None
