"""The difference of two arms, and whether their seeds and test examples establish it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

import numpy as np

from orchestrator.report import words
from orchestrator.report.noise import Measured, Sample, Variance, difference_of, mean_of
from orchestrator.report.statistics import CONFIDENCE, detectable, estimated

MOST_EXCHANGES = 20_000
"""Largest number of exchanges of seeds that are counted exactly; of more, this many are drawn."""


@dataclass(frozen=True)
class Ordering:
    """The mean of one arm minus the mean of another, and the better arm if there is one.

    Attributes:
        mean: Difference of the means.
        low: Lower end of its interval, simultaneous for `comparisons`; None if no noise is known, or if there
            are too few seeds.
        high: Upper end.
        p: Two-sided p value of this difference alone, not corrected; None if it cannot be tested.
        winner: Name of the arm that is better if this is the only comparison, or None.
        reason: Reason why the arms cannot be compared; '' if they can.
        sources: Sources of noise in the interval: `seeds` or `paired seeds`, `examples`.
        detectable: Smallest difference that these seeds and examples establish with a probability of 80 %,
            beside the other `comparisons`; None if the noise is unknown.
        comparisons: Number of comparisons that share the confidence of the interval.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    winner: str | None
    reason: str
    sources: tuple[str, ...]
    detectable: float | None = None
    comparisons: int = 1

    @property
    def phrase(self) -> str:
        """The difference with its interval and the sources of noise in it."""
        if self.low is None or self.high is None:
            return words.setting(self.mean)
        ends = f"{words.setting(self.low)} to {words.setting(self.high)}"
        return f"{words.setting(self.mean)} ({ends}; noise of {' and '.join(self.sources)})"


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

    Two tests must establish a difference, and the larger p value counts. Student's t test measures the noise
    of seeds and, with scores, of test examples, and takes the means for normal. An exact test needs no such
    assumption: if both arms had one distribution, any exchange of their seeds would be as likely as the
    measured values. Without it, three seeds that all solve a task beside three that all fail, which happens
    in 3 % of comparisons of equal arms, would have a p value below 1e-4.

    Values without scores, such as norms of hidden states or a loss, are compared over seeds only. If scores
    that should exist are missing, there is no p value.

    Args:
        first: Results of the first arm.
        second: Results of the second arm.
        maximize: Whether a higher value is better.
        comparisons: Number of comparisons that share the confidence of the interval.
        paired: Whether both have the same seeds in the same order, and share the random draws of a seed.
        scored: Whether the metric is a mean over test examples whose scores are recorded.

    Source: Pitman, Supplement to the Journal of the Royal Statistical Society 4 (1937), for the exact test.
    """
    mean = first.mean - second.mean
    if unlike := _unlike(first, second, scored=scored):
        return Ordering(mean, None, None, None, None, unlike, ())
    if min(first.seeds, second.seeds) < 2:
        return Ordering(mean, None, None, None, None, "a single seed has no noise to compare with", ())
    measured, exact = _paired(first, second) if paired else _unpaired(first, second)
    tail = (1 - CONFIDENCE) / 2 / comparisons
    p = max(measured.p_value(), exact.p)
    low, high = _interval(measured, exact, tail, most=1.0 if first.share else math.inf)
    leads = first if (measured.mean > 0) == maximize else second
    return Ordering(
        mean=measured.mean,
        low=low,
        high=high,
        p=p,
        winner=leads.name if p <= 1 - CONFIDENCE else None,
        reason="",
        sources=("paired seeds",) if paired else measured.sources,
        detectable=detectable(measured, tail) if any(each.value for each in measured.variances) else None,
        comparisons=comparisons,
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


@dataclass(frozen=True, eq=False)
class _Exact:
    """An exact test: values of seeds (N,), weights of all exchanges (K, N), and 1 for the first arm (N,)."""

    values: np.ndarray
    weights: np.ndarray
    moved: np.ndarray

    @property
    def p(self) -> float:
        """Two-sided p value that the arms have one distribution."""
        return float(_exact_p(self.values, self.weights))

    def interval(self, tail: float) -> tuple[float, float] | None:
        """Return all shifts of the first arm that the test does not reject, or None if they are unbounded.

        An exchange goes at least as far as the measured values up to some shift, which is linear in both.
        """
        differences, parts = self.weights @ self.values, self.weights @ self.moved
        others = parts < 1 - 1e-9
        shifts = np.sort((differences[0] - differences[others]) / (1 - parts[others]))
        needed = math.floor(tail * len(parts)) + 1 - int(np.sum(~others))
        return (float(shifts[needed - 1]), float(shifts[-needed])) if needed > 0 else None


def _interval(
    measured: Measured, exact: _Exact, tail: float, *, most: float
) -> tuple[float | None, float | None]:
    """Return the interval that holds what either test does not reject, within -`most` and `most`.

    Both ends are None if the exact test has no bounds, as for three seeds of each arm, and for equal seeds.
    """
    (low, high), ends = measured.interval(tail), exact.interval(tail)
    if low is None or high is None or ends is None or low == high:
        return None, None
    return max(-most, min(low, ends[0])), min(most, max(high, ends[1]))


def _unpaired(first: Sample, second: Sample) -> tuple[Measured, _Exact]:
    """Return the difference of two arms, with the noise of their examples if both have scores."""
    both = np.concatenate([first.values, second.values])
    moved = np.arange(len(both)) < first.seeds
    exact = _Exact(both, _exchanges(first.seeds, second.seeds), moved.astype(float))
    if first.scores is not None and second.scores is not None:
        return difference_of(first, second), exact
    mean, noise = first.mean - second.mean, (_variance(first.values), _variance(second.values))
    return Measured(mean, mean, noise, None), exact


def _paired(first: Sample, second: Sample) -> tuple[Measured, _Exact]:
    """Return the mean difference by seed."""
    both = min(first.seeds, second.seeds)  # fewer than asked for while an arm is being measured
    differences = first.values[:both] - second.values[:both]
    mean = float(np.mean(differences))
    exact = _Exact(differences, _flips(both), np.ones(both))
    return Measured(mean, mean, (_variance(differences),), None), exact


def _variance(values: np.ndarray) -> Variance:
    """Return the variance of the mean of values (S,)."""
    return Variance(float(np.var(values, ddof=1)) / len(values), len(values) - 1)


def exchange_p(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the exact two-sided p value that two arms have one distribution.

    It is twice the share of all exchanges of seeds between the arms that move the difference of the means as
    far in its direction as measured; of more than `MOST_EXCHANGES` exchanges, of as many random ones. Ties
    count as they are.

    Args:
        first: Values of the first arm, shape (..., S).
        second: Values of the second arm, shape (..., T).

    Returns:
        p values, shape (...).
    """
    both = np.concatenate([first, second], axis=-1)
    return _exact_p(both, _exchanges(first.shape[-1], second.shape[-1]))


def flip_p(differences: np.ndarray) -> np.ndarray:
    """Return the exact two-sided p value that differences by seed (..., S) are symmetric about zero."""
    return _exact_p(differences, _flips(differences.shape[-1]))


def _exact_p(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return twice the share of the rows of `weights` that go as far as the first row in its direction."""
    all_of_them = values @ weights.T
    own, rounding = all_of_them[..., :1], 1e-9 * np.abs(values).max(axis=-1, keepdims=True)
    above, below = (all_of_them >= own - rounding), (all_of_them <= own + rounding)
    return np.minimum(1.0, 2 * np.minimum(above.mean(axis=-1), below.mean(axis=-1)))


@lru_cache(maxsize=8)
def _exchanges(first: int, second: int) -> np.ndarray:
    """Return the weights of a difference of means for each exchange, shape (K, S + T), the measured first."""
    seeds = first + second
    if math.comb(seeds, first) <= MOST_EXCHANGES:
        chosen = np.array(list(combinations(range(seeds), first)))
    else:
        drawn = np.random.default_rng(0).random((MOST_EXCHANGES, seeds)).argsort(axis=1)[:, :first]
        chosen = np.concatenate([np.arange(first)[None], drawn])
    weights = np.full((len(chosen), seeds), -1 / second)
    np.put_along_axis(weights, chosen, 1 / first, axis=1)
    return weights


@lru_cache(maxsize=8)
def _flips(seeds: int) -> np.ndarray:
    """Return the weights of a mean for each choice of signs, shape (K, S), all positive first."""
    if 2**seeds <= MOST_EXCHANGES:
        return np.array(list(product((1.0, -1.0), repeat=seeds))) / seeds
    drawn = np.random.default_rng(0).choice((1.0, -1.0), (MOST_EXCHANGES, seeds))
    return np.concatenate([np.ones((1, seeds)), drawn]) / seeds


def fewest_for_order(comparisons: int, *, paired: bool) -> int:
    """Return the fewest seeds of each arm that can establish a difference beside other comparisons.

    If all seeds of one arm are better than all of the other, no other exchange goes as far in this direction:
    the p value is 2 / C(2 S, S), or 2 / 2^S of paired seeds.
    """
    seeds = 2
    while 2 * comparisons > (1 - CONFIDENCE) * (2**seeds if paired else math.comb(2 * seeds, seeds)):
        seeds += 1
    return seeds


def interval_of(sample: Sample) -> tuple[float, float] | None:
    """Return the interval of a mean with the noise of seeds and test examples, if both are known."""
    if not mean_of(sample).complete:
        return None
    found = estimated(sample)
    assert found.low is not None
    assert found.high is not None
    return float(found.low), float(found.high)
