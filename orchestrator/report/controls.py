"""Controls: what answers without a memory, or without reading anything, beside the result of a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from orchestrator.report import words
from orchestrator.report.noise import Sample, beside_single, mean_of
from orchestrator.report.samples import sample_of, sample_of_seeds
from orchestrator.report.statistics import CONFIDENCE
from orchestrator.report.summary import MEMORYLESS, Summary, row_of_memoryless


@dataclass(frozen=True)
class _Control:
    """A control and its score.

    Attributes:
        name: in words.
        value: its score.
        metric: that the score is of.
        single: the one training that has the score, or None for a constant answer, which has no noise.
        examples: number of validation examples that gave the score; None for those of test, or if unknown.
    """

    name: str
    value: float
    metric: str
    single: Sample | None = None
    examples: int | None = None


def control_lines(summary: Summary) -> list[str]:
    """Return the score of each control: the best constant answer, and the best trial without recurrence."""
    scores = [f"{each.name} {words.number(each.value)} {each.metric}" for each in _controls(summary)]
    return [f"Controls: {', '.join(scores)}."] if scores else []


def doubts(summary: Summary) -> list[str]:
    """Return which controls the result is not established to be better than.

    A result of one seed is that of its network alone, with the noise of the test examples.
    """
    sample = sample_of(summary)
    if sample is None or summary.chosen_layer == MEMORYLESS:
        return []
    lines = (_doubt(sample, control, maximize=summary.maximize) for control in _controls(summary))
    return [line for line in lines if line]


def _doubt(sample: Sample, control: _Control, *, maximize: bool) -> str:
    """Return a sentence about a control that the result may be no better than; '' if it is better."""
    figure, measured = control.value, mean_of(sample)
    if control.single is not None:
        figure, measured = 0.0, beside_single(sample, control.single, control.examples)
    if not measured.variances:
        return ""
    p = measured.p_value(figure)
    is_better = (sample.mean > control.value) == maximize
    if p <= 1 - CONFIDENCE and is_better:
        return ""
    found = (
        f"No difference from a control, {control.name}, is established"
        if p > 1 - CONFIDENCE
        else f"The result is worse than a control, {control.name}"
    )
    meaning = "the result does not show that this task needs what the network has"
    return f"{found} (p = {words.p_value(p)}): {meaning}."


def _controls(summary: Summary) -> Iterator[_Control]:
    constant = summary.chance.get("test")
    if constant is not None:
        yield _Control("the best constant answer", constant, summary.test_metric)
    row = row_of_memoryless(summary.layer, summary.rows)
    if row is None:
        return
    name = f"the layer {MEMORYLESS} (trial {row.number})"
    if summary.memoryless is not None:
        single = sample_of_seeds(summary, name, [summary.memoryless])
        yield _Control(name, summary.memoryless.value, summary.test_metric, single)
    elif row.value is not None:
        single = Sample(name, np.array([row.value]), None, "", share=False)
        yield _Control(name, row.value, summary.metric, single, summary.examples)
