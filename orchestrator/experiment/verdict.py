"""Verdicts: whether values by seed reproduce published figures or confirm hypotheses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import scipy

from orchestrator.errors import counted
from orchestrator.experiment.order import Ordering
from orchestrator.report import words
from orchestrator.report.statistics import CONFIDENCE

Outcome = Literal["reproduced", "not reproduced", "not comparable", "not established"]

OUTCOMES: tuple[Outcome, ...] = ("reproduced", "not reproduced", "not comparable", "not established")
"""Outcomes of published figures and claims; only claims can be `not established`."""

Answer = Literal["confirmed", "refuted", "not established"]

ANSWERS: tuple[Answer, ...] = ("confirmed", "refuted", "not established")
"""Outcomes of hypotheses of the experiment file, which are tested at the size of the experiment."""

VERDICTS: tuple[Outcome | Answer, ...] = tuple(dict.fromkeys((*OUTCOMES, *ANSWERS)))
"""All outcomes of published figures, claims and hypotheses."""

Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class StatedFigure:
    """A stated figure with a tolerance, or a bound; exactly one of the three is given.

    Attributes:
        value: Figure, or None for a bound.
        error: Published standard error, or None.
        tolerance: Largest distance from the figure that counts as reproduced.
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
        """Range of the means that reproduce the figure or keep the bound; an end may be infinite."""
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


def judged(values: Sequence[float], published: StatedFigure | None, *, seeds: int, obstacle: str) -> Verdict:
    """Judge the results of one arm against a published figure.

    Args:
        values: Value of each seed.
        published: Published figure of the arm, or None.
        seeds: Number of seeds that the experiment asks for.
        obstacle: Reasons against a comparison with the paper; '' if there are none.
    """
    if published is None:
        return Verdict(None, "the paper prints no figure for it")
    if obstacle:
        return Verdict("not comparable", obstacle)
    if len(values) < seeds:
        return Verdict("not comparable", _few(values, seeds))
    is_within = _lies_within(float(np.mean(values)), published.range)
    reason = _against(values, published) + _loose(values, published, is_within=is_within)
    return Verdict("reproduced" if is_within else "not reproduced", reason)


def answered(
    values: Sequence[float],
    bound: StatedFigure | None,
    *,
    seeds: int,
    size: str,
    lack: str = "",
    ends: Interval | None = None,
) -> Verdict:
    """Test the hypothesis that the mean of an arm keeps a bound.

    It is confirmed if the whole interval of the mean keeps the bound, and refuted if no part of it does.

    Args:
        values: Value of each seed.
        bound: Bound that the hypothesis states, or None.
        seeds: Number of seeds that the experiment asks for.
        size: Size of the arms, such as `at the size of the profile laptop`.
        lack: Reason why the arm has not run; '' if it has.
        ends: Interval with the noise of test examples, or None for the interval over seeds.
    """
    if bound is None:
        return Verdict(None, "no bound is stated for it")
    if lack:
        return Verdict("not established", lack)
    if len(values) < seeds:
        return Verdict("not established", _few(values, seeds))
    reason, (low, high) = f"{_against(values, bound, ends)}, {size}", bound.range
    if _are_equal(values):
        return Verdict("not established", f"{reason}; equal seeds show no noise")
    ends = ends or interval(values)
    if ends is None:
        return Verdict("not established", reason)
    if low <= ends[0] and ends[1] <= high:
        return Verdict("confirmed", reason)
    if ends[1] < low or ends[0] > high:
        return Verdict("refuted", reason)
    return Verdict("not established", reason)


def _lies_within(mean: float, limits: Interval) -> bool:
    """Return True if a mean lies within limits, up to rounding."""
    return limits[0] <= mean <= limits[1] or bool(np.isclose(mean, limits, rtol=1e-9, atol=1e-12).any())


def _are_equal(values: Sequence[float]) -> bool:
    return len(values) > 1 and min(values) == max(values)


def _few(values: Sequence[float], seeds: int) -> str:
    have = "has" if len(values) == 1 else "have"
    return f"{len(values)} of {counted(seeds, 'seed')} {have} a value"


def _against(values: Sequence[float], published: StatedFigure, ends: Interval | None = None) -> str:
    return f"{_measured(values, ends)} against {published.phrase}{_tolerance(published)}"


def _measured(values: Sequence[float], wide: Interval | None) -> str:
    mean, ends = float(np.mean(values)), wide or interval(values)
    if _are_equal(values):
        return f"{words.setting(mean)} ({len(values)} equal seeds)"
    if ends is None:
        return f"{words.setting(mean)} (one seed)"
    low, high = map(words.setting, ends)
    of = "" if wide is None else " and their test examples"
    return f"{words.setting(mean)} (from {low} to {high} with 95 % confidence, {len(values)} seeds{of})"


def _loose(values: Sequence[float], published: StatedFigure, *, is_within: bool) -> str:
    """Return a remark if other seeds may have another outcome, according to the interval of the mean."""
    ends, (low, high) = interval(values), published.range
    if ends is None:
        return ""
    limits = "bound" if published.value is None else "tolerance"
    if is_within and not (low <= ends[0] and ends[1] <= high):
        return f"; the interval reaches beyond the {limits}, so other seeds may not reproduce it"
    if not is_within and ends[0] <= high and ends[1] >= low:
        return f"; the interval reaches the {limits}, so other seeds may reproduce it"
    return ""


def _tolerance(published: StatedFigure) -> str:
    return "" if published.value is None else f" ± {words.setting(published.tolerance)}"


def interval(values: Sequence[float]) -> Interval | None:
    """Return the confidence interval of a mean over seeds by Student's t.

    The result is None for fewer than two seeds and for equal values, which show no noise.
    """
    if len(values) < 2 or _are_equal(values):
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
        obstacle: Reasons against a comparison with the paper; '' if there are none.
        size: Size of the arms.
    """
    if lack or found is None:
        return Verdict("not comparable", "; ".join(filter(None, (lack, obstacle))))
    if obstacle:
        here = found.why if found.winner is None else f"{found.winner} is better"
        return Verdict("not comparable", f"{obstacle}. Here, {size}: {here}")
    if found.winner is None:
        return Verdict("not established", found.why)
    if found.winner == better:
        return Verdict("reproduced", f"{better} is better")
    return Verdict("not reproduced", f"{than} is better")


def answered_order(better: str, than: str, found: Ordering | None, *, size: str, lack: str = "") -> Verdict:
    """Test the hypothesis that the arm `better` is better than the arm `than`; arguments as in `ordered`."""
    if lack or found is None:
        return Verdict("not established", lack)
    if found.winner is None:
        return Verdict("not established", f"{found.why}, {size}")
    if found.winner == better:
        return Verdict("confirmed", f"{better} is better {size}")
    return Verdict("refuted", f"{than} is better {size}")
