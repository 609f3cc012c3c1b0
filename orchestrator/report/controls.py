"""Controls: what answers without a memory, or without reading anything, beside the result of a sweep."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.report import words
from orchestrator.report.samples import sample_of
from orchestrator.report.statistics import CONFIDENCE, against
from orchestrator.report.summary import LeaderboardRow, Summary

MEMORYLESS = "none"
"""Name of the layer without recurrence."""


def control_lines(summary: Summary) -> list[str]:
    """Return the score of each control: the best constant answer, and the best trial without recurrence."""
    scores = [f"{name} {words.number(value)} {metric}" for name, value, metric in _controls(summary)]
    return [f"Controls: {', '.join(scores)}."] if scores else []


def doubts(summary: Summary) -> list[str]:
    """Return which controls the result is not established to differ from."""
    sample = sample_of(summary)
    if sample is None or summary.chosen_layer == MEMORYLESS:
        return []
    lines = []
    for name, value, _ in _controls(summary):
        p = against(sample, value)
        if p is not None and p > 1 - CONFIDENCE:
            lines.append(
                f"No difference from a control, {name}, is established (p = {words.p_value(p)}): the result "
                "does not show that this task needs what the network has."
            )
    return lines


def _controls(summary: Summary) -> Iterator[tuple[str, float, str]]:
    """Yield the name, the score and the metric of each control."""
    constant = summary.chance.get("test")
    if constant is not None:
        yield "the best constant answer", constant, summary.test_metric
    row = _memoryless(summary)
    if row is not None and row.test is not None:
        yield f"the layer {MEMORYLESS} (trial {row.number})", row.test, summary.test_metric
    elif row is not None and row.value is not None:
        yield f"the layer {MEMORYLESS} (trial {row.number})", row.value, summary.metric


def _memoryless(summary: Summary) -> LeaderboardRow | None:
    """Return the best complete trial without recurrence, or None."""
    rows = (row for row in summary.rows if row.rank is not None)
    return next((row for row in rows if row.params.get("layer", summary.layer) == MEMORYLESS), None)
