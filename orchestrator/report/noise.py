"""The noise of test results: variances over seeds and over examples, intervals, and p values.

A test result is a mean over seeds and over examples. It has two sources of noise, because another seed trains
another network, and another test set holds other examples. Their variances are estimated apart and added:

- seeds: the variance of the mean over seeds, of each sample (Welch);
- examples: the variance over examples of their mean scores over seeds. Samples of the same examples are
  paired: the differences of their scores vary less than the scores.

Interactions of seed and example, such as one network that errs on one example, contribute to both variances.
Their variance is subtracted from the second one, so that it counts once.

A half-width is the root of the sum of (quantile of Student's t * standard error)^2 over both sources, because
three seeds estimate their variance badly and a thousand examples estimate theirs well. One quantile for both,
with Satterthwaite's degrees of freedom, would cover 92 % instead of 95 % where one of two samples with three
seeds has no noise over seeds. This half-width covers at least 94 % with equally many seeds, and at least 92 %
with three seeds beside ten.

Source: Welch, Biometrika 34 (1947), for the degrees of freedom over seeds; Banerjee, Sankhya 22 (1960), for
the sum of squared half-widths; Owen, The pigeonhole bootstrap, Annals of Applied Statistics 1 (2007), for
crossed seeds and examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # `optimize` and `special` load at their first use, in 0.4 s: most commands never need them

from orchestrator.ledger.sweeps.records import unpack_scores
from orchestrator.report.history import SCORED


@dataclass(frozen=True, eq=False)
class Sample:
    """Test results of one setting.

    Attributes:
        name: Name of the setting.
        values: Score of each seed, shape (S,).
        scores: Score of each example by seed, shape (S, n), with means `values`; None if not recorded.
        data: Digest of the data; samples with equal digests have the same examples in the same order.
        share: Whether scores of examples are shares of correct answers, between 0 and 1.
        positive: Whether no score can be below 0, such as that of a squared error.
    """

    name: str
    values: np.ndarray
    scores: np.ndarray | None
    data: str
    share: bool
    positive: bool = False

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest possible value of a mean."""
        return 0.0 if self.share or self.positive else -math.inf, 1.0 if self.share else math.inf

    @classmethod
    def of(
        cls, name: str, values: Sequence[float], packed: Sequence[str | None], data: str, metric: str
    ) -> Sample:
        """Return the results of several trainings as a sample.

        Args:
            name: Name of the setting.
            values: Value of each seed, at least one.
            packed: Scores of each seed's examples, packed by `pack_scores`; empty if unknown.
            data: Digest of the data.
            metric: Metric of the values.
        """
        known = [unpack_scores(text) for text in packed if text and metric in SCORED]
        return cls(
            name=name,
            values=np.array(values),
            scores=np.array(known) if len(known) == len(values) else None,
            data=data,
            share=metric.startswith("test/accuracy"),
            positive=metric in SCORED or metric.startswith(("test/loss", "hidden_norm/", "seconds/")),
        )

    @property
    def seeds(self) -> int:
        """Number of seeds, S."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(np.mean(self.values))

    def is_paired_with(self, other: Sample) -> bool:
        """Return True if both samples have the same examples."""
        return self.data == other.data


@dataclass(frozen=True)
class Variance:
    """An estimated variance of a mean, and the degrees of freedom of the estimate."""

    value: float
    degrees: float


@dataclass(frozen=True)
class Measured:
    """A mean, or a difference of two means, with its noise by source.

    Attributes:
        mean: Measured value.
        centre: Centre of the interval, which pseudo-examples move away from the mean.
        seeds: Variance over seeds of each sample; None if a sample has a single seed.
        examples: Variance over examples, without the part in `seeds`; None if the scores of a sample are not
            recorded.
    """

    mean: float
    centre: float
    seeds: tuple[Variance, ...] | None
    examples: Variance | None

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources whose noise is known."""
        known = {"seeds": self.seeds, "examples": self.examples}
        return tuple(name for name, variance in known.items() if variance is not None)

    @property
    def complete(self) -> bool:
        """Whether the noise of both sources is known."""
        return len(self.sources) == 2

    @property
    def variances(self) -> list[Variance]:
        """Variance of each known source."""
        over_seeds = welch(self.seeds) if self.seeds else None
        return [variance for variance in (over_seeds, self.examples) if variance is not None]

    def interval(self, tail: float) -> tuple[float | None, float | None]:
        """Return the interval with probability `tail` on each side; (None, None) if no noise is known."""
        if not self.variances:
            return None, None
        half = half_width(self.variances, tail)
        return self.centre - half, self.centre + half

    def p_value(self, figure: float = 0.0) -> float:
        """Return the two-sided p value against a figure."""
        distance = abs(self.centre - figure)
        if distance == 0.0:
            return 1.0

        def excess(log_tail: float) -> float:
            return half_width(self.variances, math.exp(log_tail)) - distance

        if excess(_LEAST_LOG_TAIL) <= 0.0:
            return 0.0
        return float(2 * math.exp(scipy.optimize.brentq(excess, _LEAST_LOG_TAIL, math.log(0.5))))


_LEAST_LOG_TAIL = -100.0
"""Logarithm of the smallest tail that is computed: SciPy's quantiles are not precise further out."""


def half_width(variances: Sequence[Variance], tail: float) -> float:
    """Return the half-width of an interval with probability `tail` on each side."""
    factors = [float(scipy.special.stdtrit(each.degrees, tail)) for each in variances]
    return math.sqrt(sum(factor**2 * each.value for factor, each in zip(factors, variances, strict=True)))


def welch(variances: Sequence[Variance]) -> Variance:
    """Return the sum of variances, with Welch's degrees of freedom."""
    total = sum(each.value for each in variances)
    squares = sum(each.value**2 / each.degrees for each in variances)
    return Variance(total, total**2 / squares if squares else sum(each.degrees for each in variances))


def mean_of(sample: Sample) -> Measured:
    """Return the mean of a sample with its noise."""
    seeds = (_over_seeds(sample),) if sample.seeds > 1 else None
    if sample.scores is None:
        return Measured(sample.mean, sample.mean, seeds, None)
    centre, examples = _over_examples(sample.scores.mean(axis=0), _ALONE if sample.share else _NOTHING)
    return Measured(sample.mean, centre, seeds, _without(examples, _joint(sample.scores)))


def difference_of(first: Sample, second: Sample) -> Measured:
    """Return the mean of the first sample minus that of the second, with its noise."""
    mean = first.mean - second.mean
    several = min(first.seeds, second.seeds) > 1
    seeds = (_over_seeds(first), _over_seeds(second)) if several else None
    if first.scores is None or second.scores is None:
        return Measured(mean, mean, seeds, None)
    joint = _joint(first.scores) + _joint(second.scores) if several else 0.0
    one, other = first.scores.mean(axis=0), second.scores.mean(axis=0)
    if first.is_paired_with(second):
        centre, examples = _over_examples(one - other, _PAIRED if first.share else _NOTHING)
        return Measured(mean, centre, seeds, _without(examples, joint))
    added = _BESIDE if first.share else _NOTHING
    (above, of_one), (below, of_other) = _over_examples(one, added), _over_examples(other, added)
    return Measured(mean, above - below, seeds, _without(welch((of_one, of_other)), joint))


def beside_single(sample: Sample, single: Sample, examples: int | None = None) -> Measured:
    """Return the mean of a sample minus the value of a single training, with its noise.

    A single training shows no noise over seeds, so it is assumed to have that of the sample's seeds. If the
    scores of its examples are unknown, they are assumed to vary as those of the sample.

    Args:
        sample: Results of one or more trainings.
        single: Result of a single training.
        examples: Number of examples behind the value of `single`, if they differ from those of the sample.
    """
    mean, seeds = sample.mean - float(single.values[0]), None
    if sample.seeds > 1:
        own = _over_seeds(sample)
        seeds = (Variance(own.value * (1 + sample.seeds), own.degrees),)
    if sample.scores is None:
        return Measured(mean, mean, seeds, None)
    scores, joint = sample.scores.mean(axis=0), _joint(sample.scores)
    if single.scores is not None and single.is_paired_with(sample):
        centre, noise = _over_examples(scores - single.scores[0], _PAIRED if sample.share else _NOTHING)
        return Measured(mean, centre, seeds, _without(noise, joint))
    _, of_sample = _over_examples(scores, _BESIDE if sample.share else _NOTHING)
    count = examples or sample.scores.shape[1]
    of_single = Variance(float(np.mean(np.var(sample.scores, axis=1))) / count, max(count - 1, 1))
    return Measured(mean, mean, seeds, welch((_without(of_sample, joint), of_single)))


@dataclass(frozen=True)
class _Pseudo:
    """Pseudo-examples added to shares: their number, the sum of their scores and the sum of squares.

    Without them, the interval of forty correct answers out of forty would have no width.

    Source: Agresti & Coull, The American Statistician 52 (1998), for one share; Agresti & Caffo, ibid. 54
    (2000), for two; Agresti & Min, Statistics in Medicine 24 (2005), for paired ones.
    """

    count: int
    total: float
    squares: float


_NOTHING = _Pseudo(0, 0.0, 0.0)
_ALONE = _Pseudo(4, 2.0, 2.0)
_BESIDE = _Pseudo(2, 1.0, 1.0)
_PAIRED = _Pseudo(2, 0.0, 1.0)


def _over_seeds(sample: Sample) -> Variance:
    return Variance(float(np.var(sample.values, ddof=1)) / sample.seeds, sample.seeds - 1)


def _over_examples(scores: np.ndarray, added: _Pseudo) -> tuple[float, Variance]:
    """Return the mean of scores (n,) and its variance, both with pseudo-examples added to the scores."""
    count, degrees = len(scores) + added.count, max(len(scores) - 1, 1)
    centre = (float(np.sum(scores)) + added.total) / count
    squares = float(np.sum((scores - centre) ** 2))
    squares += added.squares - 2 * centre * added.total + added.count * centre**2
    return centre, Variance(squares / (count if added.count else degrees) / count, degrees)


def _joint(scores: np.ndarray) -> float:
    """Return the variance of the mean of scores (S, n) that interactions of seed and example cause.

    It is 0 for one seed, and otherwise the residual mean square of a two-way table without replication,
    divided by its size.
    """
    seeds, count = scores.shape
    if seeds == 1:
        return 0.0
    rest = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
    return float(np.sum(rest**2) / ((seeds - 1) * max(count - 1, 1)) / (seeds * count))


def _without(examples: Variance, joint: float) -> Variance:
    return Variance(max(0.0, examples.value - joint), examples.degrees)
