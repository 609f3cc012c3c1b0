"""Whether results reproduce what a paper prints: pure functions of values by seed and published figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from orchestrator.report import words

Outcome = Literal["reproduced", "not reproduced", "not comparable"]

OUTCOMES: tuple[Outcome, ...] = ("reproduced", "not reproduced", "not comparable")

CONFIDENCE = 0.95
"""With which the interval of a mean over seeds contains the true value."""


@dataclass(frozen=True)
class Published:
    """What a paper prints: a figure with a tolerance, or a bound. Exactly one of the three is given.

    Attributes:
        value: the figure.
        error: its published standard error, or None.
        tolerance: largest distance that counts as reproduced.
        at_least: lower bound.
        at_most: upper bound.
        source: paper, and table or figure.
        note: a remark, or ''.
    """

    value: float | None = None
    error: float | None = None
    tolerance: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    source: str = ""
    note: str = ""

    @property
    def phrase(self) -> str:
        """Return the figure or the bound in words."""
        if self.value is not None:
            error = "" if self.error is None else f" ({words.setting(self.error)})"
            return f"{words.setting(self.value)}{error}"
        if self.at_least is not None:
            return f"at least {words.setting(self.at_least)}"
        return f"at most {words.setting(self.at_most)}"

    @property
    def range(self) -> tuple[float, float]:
        """Return the lowest and the highest mean that reproduce it; an end may be infinite."""
        if self.value is not None:
            assert self.tolerance is not None, "a figure has a tolerance"
            return self.value - self.tolerance, self.value + self.tolerance
        low = -np.inf if self.at_least is None else self.at_least
        high = np.inf if self.at_most is None else self.at_most
        return low, high


@dataclass(frozen=True)
class Verdict:
    """An outcome, and the reason for it."""

    outcome: Outcome
    reason: str

    @property
    def phrase(self) -> str:
        """Return the outcome with its reason, as a page prints it."""
        joint = ", because " if self.outcome == "not comparable" else ": "
        return f"{self.outcome}{joint}{self.reason}" if self.reason else self.outcome


def judged(values: Sequence[float], published: Published | None, *, seeds: int, obstacle: str) -> Verdict:
    """Judge the results of one arm.

    Args:
        values: by seed.
        published: what the paper prints for the arm, or None.
        seeds: number of seeds that the experiment asks for.
        obstacle: why results of this arm do not compare with the paper's; '' if they do.
    """
    if published is None:
        return Verdict("not comparable", "the paper prints no figure for it")
    if obstacle:
        return Verdict("not comparable", obstacle)
    if len(values) < seeds:
        return Verdict("not comparable", f"{len(values)} of {seeds} seeds have a value")
    mean, (low, high) = float(np.mean(values)), published.range
    reason = f"{_measured(values)} against {published.phrase}{_tolerance(published)}"
    return Verdict("reproduced" if low <= mean <= high else "not reproduced", reason)


def _measured(values: Sequence[float]) -> str:
    mean, ends = float(np.mean(values)), interval(values)
    if ends is None:
        return f"{words.setting(mean)} (one seed)"
    low, high = map(words.setting, ends)
    return f"{words.setting(mean)} (from {low} to {high} with 95 % confidence, {len(values)} seeds)"


def _tolerance(published: Published) -> str:
    return "" if published.value is None else f" ± {words.setting(published.tolerance)}"


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the confidence interval of a mean over seeds by Student's t; None for fewer than two seeds."""
    if len(values) < 2:
        return None
    error = float(np.std(values, ddof=1)) / np.sqrt(len(values))
    half = -float(stdtrit(len(values) - 1, (1 - CONFIDENCE) / 2)) * error
    mean = float(np.mean(values))
    return mean - half, mean + half


def ordered(
    better: str, than: str, winner: str | None, reason: str, *, size: str = "", obstacle: str = ""
) -> Verdict:
    """Judge the claim that one arm is better than another.

    Args:
        better: name of the arm that the paper calls better.
        than: name of the other one.
        winner: the arm that the comparison of the two has established as better, or None.
        reason: why there is no winner; '' if there is one.
        size: the size of the arms, if it is not the paper's; '' if it is.
        obstacle: why the arms cannot be compared with each other; '' if they can.
    """
    if obstacle:
        return Verdict("not comparable", obstacle)
    where = f" {size}" if size else ""
    if winner is None:
        return Verdict("not reproduced", f"no difference is established{where} ({reason})")
    if winner == better:
        return Verdict("reproduced", f"{better} is better{where}")
    return Verdict("not reproduced", f"{than} is better{where}")
