"""Verdicts: whether values by seed reproduce published figures or confirm hypotheses.

A figure or a bound is judged by the median over seeds and an exact test of counts, because results are often
bimodal: a training solves a task or does not, and a mean with a Student interval then has no meaning. The p
values of a family are corrected by Holm's method, so that all its verdicts together err in at most 5 % of
cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import scipy

from orchestrator.errors import counted
from orchestrator.experiment.order import Ordering, fewest_for_order
from orchestrator.report import words
from orchestrator.report.noise import Variance
from orchestrator.report.statistics import CONFIDENCE, median_interval, sign_p

RULES = "2026-11-29"
"""Day since which verdicts are judged by these rules; earlier results are judged again."""

Outcome = Literal["reproduced", "not reproduced", "not comparable", "undetermined"]

OUTCOMES: tuple[Outcome, ...] = ("reproduced", "not reproduced", "not comparable", "undetermined")
"""Outcomes of published figures and claims."""

Answer = Literal["confirmed", "refuted", "undetermined"]

ANSWERS: tuple[Answer, ...] = ("confirmed", "refuted", "undetermined")
"""Outcomes of hypotheses of the experiment file, which are tested at the size of the experiment."""

VERDICTS: tuple[Outcome | Answer, ...] = tuple(dict.fromkeys((*OUTCOMES, *ANSWERS)))
"""All outcomes of published figures, claims and hypotheses."""

SHOWN = ("reproduced", "confirmed")
"""Outcomes in favour of what is stated."""

Interval: TypeAlias = tuple[float, float]

SEEDS_SHARE, EXAMPLES_SHARE = 0.8, 0.2
"""Parts of the level of a test for the luck of seeds and for the luck of test examples."""

NO_EXAMPLES = Variance(0.0, np.inf)
"""Noise over test examples of a metric that has none, or whose scores are never recorded."""


@dataclass(frozen=True)
class StatedFigure:
    """A stated figure with a tolerance, or a bound; exactly one of the three is given.

    Attributes:
        value: Figure, or None for a bound.
        error: Published standard error, or None.
        tolerance: Largest distance of the median from the figure that counts as reproduced.
        at_least: Lower bound.
        at_most: Upper bound.
        source: Paper, and table or figure.
        note: Remark, or ''.
        layer_parameters: Published number of parameters of the layers, or None.
    """

    value: float | None = None
    error: float | None = None
    tolerance: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    source: str = ""
    note: str = ""
    layer_parameters: int | None = None

    @property
    def phrase(self) -> str:
        """The text on a page."""
        if self.value is not None:
            error = "" if self.error is None else f" ({words.setting(self.error)})"
            return f"{words.setting(self.value)}{error}"
        if self.at_least is not None:
            return f"at least {words.setting(self.at_least)}"
        return f"at most {words.setting(self.at_most)}"

    @property
    def range(self) -> tuple[float, float]:
        """Range of the medians that reproduce the figure or keep the bound; an end may be infinite."""
        if self.value is not None:
            assert self.tolerance is not None, "a figure has a tolerance"
            return self.value - self.tolerance, self.value + self.tolerance
        low = -np.inf if self.at_least is None else self.at_least
        high = np.inf if self.at_most is None else self.at_most
        return low, high


@dataclass(frozen=True)
class Corrected:
    """The p value of a comparison, and its correction for the others of its family.

    Attributes:
        p: p value of the comparison alone; None if it cannot be tested.
        holm: p value corrected by Holm's method; None if it cannot be tested.
        comparisons: Number of comparisons in the family.
    """

    p: float | None
    holm: float | None
    comparisons: int = 1

    @property
    def decides(self) -> bool:
        """Whether the comparison is decided although the family has others."""
        return self.holm is not None and self.holm <= 1 - CONFIDENCE

    @property
    def phrase(self) -> str:
        """The text on a page."""
        if self.p is None or self.holm is None:
            return f"not tested, {counted(self.comparisons, 'comparison')} in the family"
        if self.comparisons == 1:
            return f"p = {self.p:.2g}"
        return f"p = {self.p:.2g}, {self.holm:.2g} corrected for {self.comparisons} comparisons"


@dataclass(frozen=True)
class Verdict:
    """An outcome and its reason.

    Attributes:
        outcome: Outcome, or None if nothing is stated.
        reason: Reason, in words.
        cause: What is missing for a decision, in a few words; '' if nothing is.
    """

    outcome: Outcome | Answer | None
    reason: str
    cause: str = ""

    @property
    def phrase(self) -> str:
        """The text on a page."""
        if self.outcome is None:
            return self.reason
        joint = ", because " if self.outcome == "not comparable" else ": "
        return f"{self.outcome}{joint}{self.reason}" if self.reason else self.outcome


def sides(values: np.ndarray, limits: Interval, noise: Variance | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the p values of two statements: the median lies within limits, and it lies outside.

    The median is the value that half of all trainings reach. If it lay beyond a limit, at most half of the
    trainings would be within it: the sign test counts the seeds that are, by more than the noise of the test
    examples, which all seeds share. It is exact for every distribution of the seeds. The level is divided
    into `SEEDS_SHARE` for the seeds and `EXAMPLES_SHARE` for the examples, and the best margin is searched:
    each number of seeds k has a p value, and the k seeds furthest within the limit have a margin. Two limits
    are two one-sided tests, both of which must reject.

    Args:
        values: Value of each seed, shape (..., S).
        limits: Lower and upper limit; one may be infinite.
        noise: Noise of a mean over test examples; None if it is unknown, which leaves everything open.

    Returns:
        p values of within and outside, shape (...).

    Source: the sign test; Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15 (1987), for two limits.
    """
    if noise is None:
        return np.ones(values.shape[:-1]), np.ones(values.shape[:-1])
    low, high = limits
    above, below = _margin(values, low), -_margin(values, high)
    within = np.maximum(_counted_p(above, noise), _counted_p(below, noise))
    out = [_counted_p(np.where(inner < 0, -inner, -np.inf), noise) for inner in (above, below)]
    return within, np.minimum(*out)


def _margin(values: np.ndarray, limit: float) -> np.ndarray:
    """Return values minus a limit; 0 for values that only rounding separates from it."""
    margins: np.ndarray = np.subtract(values, limit)
    margins[np.isclose(values, limit, rtol=1e-9, atol=1e-12)] = 0.0
    return margins


def _counted_p(margins: np.ndarray, noise: Variance) -> np.ndarray:
    """Return the p value that at most half of all seeds have a positive margin, from margins (..., S)."""
    seeds = margins.shape[-1]
    ranked = -np.sort(-margins, axis=-1)
    by_count = np.array([sign_p(count, seeds) for count in range(1, seeds + 1)])
    if noise.value == 0.0:
        each = np.where(ranked >= 0, by_count, 1.0)
    else:
        luck = scipy.special.stdtr(noise.degrees, -ranked / np.sqrt(noise.value))
        each = np.where(ranked >= 0, np.maximum(by_count / SEEDS_SHARE, luck / EXAMPLES_SHARE), 1.0)
    return np.minimum(each.min(axis=-1), 1.0)


def p_of(values: Sequence[float], stated: StatedFigure, noise: Variance | None) -> float | None:
    """Return the p value of a figure or a bound alone: of the side that the values show; None if unknown."""
    if noise is None or not values:
        return None
    return float(min(sides(np.asarray(values, dtype=float), stated.range, noise)))


def fewest_seeds(comparisons: int, noise: Variance = NO_EXAMPLES) -> int:
    """Return the fewest seeds that can decide a bound in a family: five equal signs have p = 2^-5 = 0.031."""
    seeds, share = 1, SEEDS_SHARE if noise.value else 1.0
    while comparisons > (1 - CONFIDENCE) * share * 2**seeds:
        seeds += 1
    return seeds


def judged(
    values: Sequence[float],
    published: StatedFigure | None,
    *,
    seeds: int,
    obstacle: str,
    noise: Variance | None = NO_EXAMPLES,
    corrected: Corrected | None = None,
) -> Verdict:
    """Judge the results of one arm against a published figure; see `sides`.

    Args:
        values: Value of each seed.
        published: Published figure of the arm, or None.
        seeds: Number of seeds that the experiment asks for.
        obstacle: Reasons against a comparison with the paper; '' if there are none.
        noise: Noise over test examples; None if their scores are not recorded.
        corrected: p value within its family; None for a family of one.
    """
    if published is None:
        return Verdict(None, "the paper prints no figure for it")
    if obstacle:
        return Verdict("not comparable", obstacle, OTHER)
    if len(values) < seeds:
        return Verdict("undetermined", _few(values, seeds), MISSING)
    found, reason, cause = _decided(values, published, noise, corrected)
    return Verdict(_OF_FIGURES[found], reason, cause)


def answered(
    values: Sequence[float],
    bound: StatedFigure | None,
    *,
    seeds: int,
    size: str,
    lack: str = "",
    noise: Variance | None = NO_EXAMPLES,
    corrected: Corrected | None = None,
) -> Verdict:
    """Test the hypothesis that the median of an arm keeps a bound; see `sides`.

    Args:
        values: Value of each seed.
        bound: Bound that the hypothesis states, or None.
        seeds: Number of seeds that the experiment asks for.
        size: Size of the arms, such as `at the size of the profile laptop`.
        lack: Reason why the arm has not run; '' if there is none.
        noise: Noise over test examples, as in `judged`.
        corrected: p value within its family, as in `judged`.
    """
    if bound is None:
        return Verdict(None, "no bound is stated for it")
    if lack:
        return Verdict("undetermined", lack, MISSING)
    if len(values) < seeds:
        return Verdict("undetermined", _few(values, seeds), MISSING)
    found, reason, cause = _decided(values, bound, noise, corrected)
    return Verdict(_OF_BOUNDS[found], f"{reason}, {size}", cause)


_OF_FIGURES: dict[bool | None, Outcome] = {True: "reproduced", False: "not reproduced", None: "undetermined"}
_OF_BOUNDS: dict[bool | None, Answer] = {True: "confirmed", False: "refuted", None: "undetermined"}

MISSING, UNSCORED, FEW = "seeds are missing", "scores are not recorded", "too few seeds for the family"
ACROSS, ALIKE, NOTHING = "seeds or noise lie across", "no difference is established", "controls fail"
OTHER = "other data, size or settings than the paper's"
"""Causes of a verdict that is undetermined or not comparable."""


def _few(values: Sequence[float], seeds: int) -> str:
    have = "has" if len(values) == 1 else "have"
    return f"{len(values)} of {counted(seeds, 'seed')} {have} a value"


def _decided(
    values: Sequence[float], stated: StatedFigure, noise: Variance | None, corrected: Corrected | None
) -> tuple[bool | None, str, str]:
    """Return whether the median is within what is stated, with the values, and the cause if that is open."""
    if corrected is None:
        p = p_of(values, stated, noise)
        corrected = Corrected(p, p)
    low, high, confidence = median_interval(values)
    kind = "from" if confidence < CONFIDENCE else "interval"
    spread = (
        "one seed"
        if len(values) == 1
        else f"{len(values)} seeds, {kind} {words.setting(low)} to {words.setting(high)}"
    )
    tolerance = "" if stated.value is None else f" ± {words.setting(stated.tolerance)}"
    text = f"median {words.setting(float(np.median(values)))} ({spread}) against {stated.phrase}{tolerance}"
    if noise is None:
        return None, f"{text}; the scores of the test examples are not recorded", UNSCORED
    text = f"{text}; {corrected.phrase}"
    if corrected.decides:
        within, outside = sides(np.asarray(values, dtype=float), stated.range, noise)
        return bool(within <= outside), text, ""
    fewest = fewest_seeds(corrected.comparisons, noise)
    if len(values) < fewest:
        return None, f"{text}; fewer than {fewest} seeds cannot decide", FEW
    limits = "bound" if stated.value is None else "tolerance"
    return None, f"{text}; seeds or the noise of test examples lie across the {limits}", ACROSS


def ordered(
    better: str,
    than: str,
    found: Ordering | None,
    *,
    seeds: int,
    corrected: Corrected | None = None,
    lack: str = "",
    obstacle: str = "",
    size: str = "",
) -> Verdict:
    """Judge the published claim that the arm `better` is better than the arm `than`.

    A claim is not reproduced if the opposite is established. Arms that differ from the published ones cannot
    decide a claim, and their difference is part of the reason.

    Args:
        better: Name of the first arm.
        than: Name of the second arm.
        found: Measured difference, or None if `lack` gives a reason.
        seeds: Number of seeds of the arm with fewer of them.
        corrected: p value within its family; None for a family of one.
        lack: Reason why the arms cannot be compared with each other; '' if they can.
        obstacle: Reasons against a comparison with the paper; '' if there are none.
        size: Size of the arms.
    """
    if lack or found is None:
        return Verdict("not comparable", "; ".join(filter(None, (lack, obstacle))), MISSING)
    winner, why, cause = _winner(found, seeds, corrected)
    if obstacle:
        here = why if winner is None else f"{winner} is better; {why}"
        return Verdict("not comparable", f"{obstacle}. Here, {size}: {here}", OTHER)
    if winner is None:
        return Verdict("undetermined", why, cause)
    if winner == better:
        return Verdict("reproduced", f"{better} is better; {why}")
    return Verdict("not reproduced", f"{than} is better; {why}")


def answered_order(
    better: str,
    than: str,
    found: Ordering | None,
    *,
    seeds: int,
    corrected: Corrected | None = None,
    size: str,
    lack: str = "",
) -> Verdict:
    """Test the hypothesis that the arm `better` is better than the arm `than`; arguments as in `ordered`."""
    if lack or found is None:
        return Verdict("undetermined", lack, MISSING)
    winner, why, cause = _winner(found, seeds, corrected)
    if winner is None:
        return Verdict("undetermined", f"{why}, {size}", cause)
    if winner == better:
        return Verdict("confirmed", f"{better} is better {size}; {why}")
    return Verdict("refuted", f"{than} is better {size}; {why}")


def _winner(found: Ordering, seeds: int, corrected: Corrected | None) -> tuple[str | None, str, str]:
    """Return the better arm or None, the p value or what is missing, and the cause if there is no winner."""
    if found.p is None:
        return None, found.reason, UNSCORED if "not recorded" in found.reason else ALIKE
    corrected = corrected or Corrected(found.p, found.p)
    if corrected.decides:
        return found.winner, corrected.phrase, ""
    text = f"no difference is established, {corrected.phrase}"
    fewest = fewest_for_order(corrected.comparisons, paired=found.sources == ("paired seeds",))
    if seeds < fewest:
        return None, f"{text}; fewer than {fewest} seeds of each cannot decide", FEW
    if found.detectable is None:
        return None, text, ALIKE
    smallest = words.setting(found.detectable)
    return None, f"{text}; a difference of {smallest} would be, in 80 % of cases", ALIKE


def interval(values: Sequence[float]) -> Interval | None:
    """Return the confidence interval of a mean over seeds by Student's t.

    The result is None for fewer than two seeds and for equal values, which show no noise.
    """
    if len(values) < 2 or min(values) == max(values):
        return None
    error = float(np.std(values, ddof=1)) / np.sqrt(len(values))
    half = -float(scipy.special.stdtrit(len(values) - 1, (1 - CONFIDENCE) / 2)) * error
    mean = float(np.mean(values))
    return mean - half, mean + half
