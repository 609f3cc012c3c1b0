"""Chance and controls: what an arm must differ from before its task shows anything about its network.

Controls of an arm are the best constant answer and every arm of the layer without recurrence that was tested
on the same examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from orchestrator.experiment.order import ordering
from orchestrator.experiment.results import ArmResult
from orchestrator.report.controls import MEMORYLESS
from orchestrator.report.history import History
from orchestrator.report.noise import Sample
from orchestrator.report.statistics import CONFIDENCE, against

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


def with_doubts(
    arms: Sequence[ArmResult],
    samples: Mapping[str, Sample],
    histories: Mapping[str, History | None],
    *,
    maximize: bool,
) -> tuple[ArmResult, ...]:
    """Return the arms with the controls that each is not established to differ from.

    Args:
        arms: of an experiment.
        samples: by the name of each arm that has values.
        histories: of the sweeps of the arms.
        maximize: whether a higher value is better.
    """
    controls = [name for name, history in histories.items() if _is_control(history)]
    memoryless = {name: samples[name] for name in controls if name in samples}

    def doubts(arm: ArmResult) -> Iterator[str]:
        sample = samples[arm.name]
        p = None if arm.chance is None else against(sample, arm.chance)
        if p is not None and p > 1 - CONFIDENCE:
            yield CHANCE
        for name, control in memoryless.items():
            is_comparable = name != arm.name and control.is_paired_with(sample)
            if is_comparable and ordering(sample, control, maximize=maximize).winner is None:
                yield name

    return tuple(replace(arm, doubts=tuple(doubts(arm)) if arm.name in samples else ()) for arm in arms)


def _is_control(history: History | None) -> bool:
    return history is not None and history.sweep.document["model"]["layer"] == MEMORYLESS
