"""Chance and controls: what an arm must be better than before its task shows anything about its network.

Controls of an arm are the best constant answer and every arm of the layer without recurrence that was tested
on the same examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from orchestrator.experiment.order import ordering
from orchestrator.experiment.results import ArmResult, Results
from orchestrator.experiment.samples import is_scored, sample_of
from orchestrator.experiment.verdict import Interval, interval
from orchestrator.report.history import History
from orchestrator.report.summary import MEMORYLESS

CHANCE = "chance"
"""Name of the best constant answer on a page."""

_LENGTH = re.compile(r"_(x\d+)$")


def base_of(metric: str) -> str:
    """Return a metric without the name of a longer test split: `test/accuracy` of `test/accuracy_x4`."""
    return _LENGTH.sub("", metric)


def chance_of(metric: str, history: History) -> float | None:
    """Return the score of the best constant answer on the test split; None for a metric of another kind.

    That of a split with longer sequences is not recorded; it is taken to be that of the test split itself,
    whose answers have the same rule.
    """
    if base_of(metric).removeprefix("test/") != history.metric.removeprefix("val/"):
        return None
    chance: float | None = history.sweep.facts.get("chance", {}).get("test")
    return chance


def doubts(results: Results, arm: ArmResult) -> tuple[str, ...]:
    """Return the names of the controls that an arm is not established to be better than.

    Seeds without an interval, because there is one or all are equal, are doubted if their mean is not better
    than the best constant answer.
    """
    return tuple(_doubts(results, arm)) if arm.values else ()


def _doubts(results: Results, arm: ArmResult) -> Iterator[str]:
    if arm.chance is not None:
        mean = float(np.mean(arm.values))
        if not _is_above(_ends(arm) or (mean, mean), (arm.chance, arm.chance), maximize=results.maximize):
            yield CHANCE
    for control in results.arms:
        is_control = control.name != arm.name and control.about.startswith(f"{MEMORYLESS} on ")
        is_comparable = is_control and control.values and control.data_digest == arm.data_digest
        if is_comparable and not _is_established(results, arm, control):
            yield control.name


def _is_established(results: Results, arm: ArmResult, control: ArmResult) -> bool:
    """Return True if an arm is better than a control.

    Where the scores of test examples were not published, because an earlier version did not, the intervals
    must not overlap, which takes a larger difference than a comparison does.
    """
    own, other = (sample_of(each, results.metric) for each in (arm, control))
    scored = is_scored(results.metric)
    if not scored or (own.scores is not None and other.scores is not None):
        return ordering(own, other, maximize=results.maximize, scored=scored).winner == arm.name
    ends, limits = _ends(arm), _ends(control)
    return ends is not None and limits is not None and _is_above(ends, limits, maximize=results.maximize)


def _ends(arm: ArmResult) -> Interval | None:
    """Return the interval of the mean of an arm, with the noise of test examples if it is known."""
    return arm.interval or interval(arm.values)


def _is_above(ends: Interval, limits: Interval, *, maximize: bool) -> bool:
    """Return True if an interval lies on the better side of another one."""
    return ends[0] > limits[1] if maximize else ends[1] < limits[0]
