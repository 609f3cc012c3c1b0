"""Verdicts: whether values by seed reproduce published figures or confirm hypotheses.

A figure or a bound is judged by the median over seeds and an exact test of counts, because results are often
bimodal: a training solves a task or does not, and a mean with a Student interval then has no meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import scipy

from orchestrator.errors import counted
from orchestrator.experiment.order import Ordering
from orchestrator.report import words
from orchestrator.report.statistics import CONFIDENCE, median_interval, sign_p

Outcome = Literal["reproduced", "not reproduced", "not comparable", "undetermined"]

OUTCOMES: tuple[Outcome, ...] = ("reproduced", "not reproduced", "not comparable", "undetermined")
"""Outcomes of published figures and claims."""

Answer = Literal["confirmed", "refuted", "undetermined"]

ANSWERS: tuple[Answer, ...] = ("confirmed", "refuted", "undetermined")
"""Outcomes of hypotheses of the experiment file, which are tested at the size of the experiment."""

VERDICTS: tuple[Outcome | Answer, ...] = tuple(dict.fromkeys((*OUTCOMES, *ANSWERS)))
"""All outcomes of published figures, claims and hypotheses."""

Interval: TypeAlias = tuple[float, float]

SEEDS_LEVEL, EXAMPLES_LEVEL = 0.04, 0.01
"""Probabilities that the seeds, and that the test examples, show the wrong side of a limit."""

FEWEST_SEEDS = 5
"""Smallest number of seeds that can decide: five equal signs have a p value of 2^-5 = 0.031."""


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
class Verdict:
    """An outcome and its reason; the outcome is None if nothing is stated."""

    outcome: Outcome | Answer | None
    reason: str

    @property
    def phrase(self) -> str:
        """The text on a page."""
        if self.outcome is None:
            return self.reason
        joint = ", because " if self.outcome == "not comparable" else ": "
        return f"{self.outcome}{joint}{self.reason}" if self.reason else self.outcome


def judged(
    values: Sequence[float],
    published: StatedFigure | None,
    *,
    seeds: int,
    obstacle: str,
    noise: float | None = 0.0,
) -> Verdict:
    """Judge the results of one arm against a published figure; see `side`.

    Args:
        values: Value of each seed.
        published: Published figure of the arm, or None.
        seeds: Number of seeds that the experiment asks for.
        obstacle: Reasons against a comparison with the paper; '' without any.
        noise: Half-width of the interval over test examples; 0.0 for a metric without test examples, None
            if their scores are not recorded.
    """
    if published is None:
        return Verdict(None, "the paper prints no figure for it")
    if obstacle:
        return Verdict("not comparable", obstacle)
    if len(values) < seeds:
        return Verdict("undetermined", _few(values, seeds))
    found = side(values, published.range, noise)
    return Verdict(_OF_FIGURES[found], _against(values, published, noise, found))


def answered(
    values: Sequence[float],
    bound: StatedFigure | None,
    *,
    seeds: int,
    size: str,
    lack: str = "",
    noise: float | None = 0.0,
) -> Verdict:
    """Test the hypothesis that the median of an arm keeps a bound; see `side`.

    Args:
        values: Value of each seed.
        bound: Bound that the hypothesis states, or None.
        seeds: Number of seeds that the experiment asks for.
        size: Size of the arms, such as `at the size of the profile laptop`.
        lack: Reason why the arm has not run or does not count; '' if there is none.
        noise: Half-width of the interval over test examples, as in `judged`.
    """
    if bound is None:
        return Verdict(None, "no bound is stated for it")
    if lack:
        return Verdict("undetermined", lack)
    if len(values) < seeds:
        return Verdict("undetermined", _few(values, seeds))
    found = side(values, bound.range, noise)
    return Verdict(_OF_BOUNDS[found], f"{_against(values, bound, noise, found)}, {size}")


_OF_FIGURES: dict[bool | None, Outcome] = {True: "reproduced", False: "not reproduced", None: "undetermined"}
_OF_BOUNDS: dict[bool | None, Answer] = {True: "confirmed", False: "refuted", None: "undetermined"}


def side(values: Sequence[float], limits: Interval, noise: float | None) -> bool | None:
    """Return True if the median over all seeds is shown to lie within limits, False if outside, else None.

    The median is the value that half of all trainings reach. Of the given values, enough must lie within each
    limit, and by more than the noise of the test examples, that the sign test rejects a median beyond it.
    Together, both sources of noise show a wrong side in at most 5 % of cases, for every distribution of the
    seeds: `SEEDS_LEVEL` and `EXAMPLES_LEVEL` add up to it. Two limits are two one-sided tests.

    Args:
        values: Value of each seed, shape (S,).
        limits: Lower and upper limit; one may be infinite.
        noise: Half-width of the one-sided interval over test examples with `EXAMPLES_LEVEL`; None if unknown.

    Source: the sign test; Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15 (1987), for two limits.
    """
    if noise is None:
        return None
    (low, high), count, each = limits, len(values), np.asarray(values, dtype=float)
    least, most = low + noise, high - noise
    over = int(np.sum((each >= least) | np.isclose(each, least, rtol=1e-9, atol=1e-12)))
    under = int(np.sum((each <= most) | np.isclose(each, most, rtol=1e-9, atol=1e-12)))
    if max(sign_p(over, count), sign_p(under, count)) <= SEEDS_LEVEL:
        return True
    beyond = max(int(np.sum(each < low - noise)), int(np.sum(each > high + noise)))
    return False if sign_p(beyond, count) <= SEEDS_LEVEL else None


def _few(values: Sequence[float], seeds: int) -> str:
    have = "has" if len(values) == 1 else "have"
    return f"{len(values)} of {counted(seeds, 'seed')} {have} a value"


def _against(values: Sequence[float], stated: StatedFigure, noise: float | None, found: bool | None) -> str:
    """Return the measured values beside what is stated, and the reason why they do not decide."""
    low, high, _ = median_interval(values)
    spread = (
        "one seed"
        if len(values) == 1
        else f"{len(values)} seeds from {words.setting(low)} to {words.setting(high)}"
    )
    tolerance = "" if stated.value is None else f" ± {words.setting(stated.tolerance)}"
    text = f"median {words.setting(float(np.median(values)))} ({spread}) against {stated.phrase}{tolerance}"
    if found is not None:
        return text
    if noise is None:
        return f"{text}; the scores of the test examples are not recorded"
    if len(values) < FEWEST_SEEDS:
        return f"{text}; fewer than {FEWEST_SEEDS} seeds cannot decide"
    limits = "bound" if stated.value is None else "tolerance"
    return f"{text}; seeds or the noise of test examples lie across the {limits}"


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


def ordered(
    better: str, than: str, found: Ordering | None, *, lack: str = "", obstacle: str = "", size: str = ""
) -> Verdict:
    """Judge the published claim that the arm `better` is better than the arm `than`.

    A claim is not reproduced if the opposite is established. Arms that differ from the published ones cannot
    decide a claim, and their difference is part of the reason.

    Args:
        better: Name of the first arm.
        than: Name of the second arm.
        found: Measured difference, or None if `lack` gives a reason.
        lack: Reason why the arms cannot be compared with each other; '' if they can.
        obstacle: Reasons against a comparison with the paper; '' without any.
        size: Size of the arms.
    """
    if lack or found is None:
        return Verdict("not comparable", "; ".join(filter(None, (lack, obstacle))))
    if obstacle:
        here = found.why if found.winner is None else f"{found.winner} is better"
        return Verdict("not comparable", f"{obstacle}. Here, {size}: {here}")
    if found.winner is None:
        return Verdict("undetermined", found.why)
    if found.winner == better:
        return Verdict("reproduced", f"{better} is better")
    return Verdict("not reproduced", f"{than} is better")


def answered_order(better: str, than: str, found: Ordering | None, *, size: str, lack: str = "") -> Verdict:
    """Test the hypothesis that the arm `better` is better than the arm `than`; arguments as in `ordered`."""
    if lack or found is None:
        return Verdict("undetermined", lack)
    if found.winner is None:
        return Verdict("undetermined", f"{found.why}, {size}")
    if found.winner == better:
        return Verdict("confirmed", f"{better} is better {size}")
    return Verdict("refuted", f"{than} is better {size}")
