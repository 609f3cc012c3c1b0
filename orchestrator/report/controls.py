"""Controls that a result must beat: the best constant answer, and a layer without recurrence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from orchestrator.report import words
from orchestrator.report.noise import Sample, beside_single, mean_of
from orchestrator.report.statistics import CONFIDENCE
from orchestrator.report.summary import MEMORYLESS, Summary, row_of_memoryless


def sample_of(summary: Summary) -> Sample | None:
    """Return the test results of a sweep as a sample, or None if it has none."""
    results = summary.seeds.results
    if not results:
        return None
    values, scores = [each.value for each in results], [each.scores for each in results]
    return Sample.of(summary.sweep_id, values, scores, summary.data_digest, summary.test_metric)


@dataclass(frozen=True)
class _Control:
    """A control and its score.

    Attributes:
        single: The training that has the score, or None for a constant answer, which has no noise.
        examples: Number of validation examples behind the score; None for test examples, or if unknown.
    """

    name: str
    value: float
    metric: str
    single: Sample | None = None
    examples: int | None = None


def control_lines(summary: Summary) -> list[str]:
    """Return a sentence with the scores of the controls, if there are any."""
    scores = [f"{each.name} {words.number(each.value)} {each.metric}" for each in _controls(summary)]
    return [f"Controls: {', '.join(scores)}."] if scores else []


def doubts(summary: Summary) -> list[str]:
    """Return a sentence for each control that the result does not beat significantly.

    With one seed, only the noise of the test examples is known.
    """
    sample = sample_of(summary)
    if sample is None or summary.chosen_layer == MEMORYLESS:
        return []
    lines = (_doubt(sample, control, maximize=summary.maximize) for control in _controls(summary))
    return [line for line in lines if line]


def _doubt(sample: Sample, control: _Control, *, maximize: bool) -> str:
    """Return a sentence on a control, or '' if the result is better."""
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
    constant, metric = summary.chance.get("test"), summary.test_metric
    if constant is not None:
        yield _Control("the best constant answer", constant, metric)
    row, tested = row_of_memoryless(summary.layer, summary.rows), summary.memoryless
    if row is None:
        return
    name = f"the layer {MEMORYLESS} (trial {row.number})"
    if tested is not None:
        single = Sample.of(name, [tested.value], [tested.scores], summary.data_digest, metric)
        yield _Control(name, tested.value, metric, single)
    elif row.value is not None:
        single = Sample(name, np.array([row.value]), None, "", share=False)
        yield _Control(name, row.value, summary.metric, single, summary.examples)
