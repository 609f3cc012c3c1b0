"""Sweeps, layers and tasks side by side with published results."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.report import words
from orchestrator.report.answer import spread
from orchestrator.report.markdown import SIZE_HEADER, bullets, size_cells, table
from orchestrator.report.published import FIGURES, Figure, figures
from orchestrator.report.summary import Summary


def comparison(summaries: Sequence[Summary]) -> str:
    """Return a table of sweeps, and a matrix of their layers and tasks, as Markdown."""
    return "\n\n".join(
        [
            "## Sweeps",
            table(_HEADER, [_line(summary) for summary in summaries]),
            "## Layers and tasks",
            "Measured on test, then published; a dash means not measured.",
            _matrix(summaries),
            "## Sources",
            bullets(_sources(summaries)),
        ]
    )


_HEADER = ("sweep", "layer", "task", "validation", "test", "trials", *SIZE_HEADER, "state", "how")


def _line(summary: Summary) -> list[str]:
    chosen = summary.chosen
    return [
        summary.sweep_id,
        summary.layer,
        summary.task,
        words.number(None if chosen is None else chosen.row.value),
        measured(summary),
        str(len(summary.rows)),
        *size_cells(None if chosen is None else chosen.row.cost),
        summary.state.lower(),
        _how(summary),
    ]


def measured(summary: Summary) -> str:
    """Return the test metric: mean and deviation over fresh seeds, else that of the chosen trial."""
    values = [row.test for row in summary.confirmations if row.test is not None]
    if values:
        seeds = spread(values)
        deviation = "" if seeds.deviation is None else f" ± {words.number(seeds.deviation)}"
        return f"{words.number(seeds.mean)}{deviation} ({seeds.count} seeds)"
    chosen = summary.chosen
    return words.number(None if chosen is None else chosen.row.test)


def _how(summary: Summary) -> str:
    profile = f"profile {summary.profile}" if summary.profile else "as published"
    return profile if summary.comparable else f"{profile}; {summary.data_source}"


def _matrix(summaries: Sequence[Summary]) -> str:
    layers = list(dict.fromkeys(summary.layer for summary in summaries))
    tasks = list(dict.fromkeys(summary.task for summary in summaries))
    lines = [[layer, *(_cell(summaries, layer, task) for task in tasks)] for layer in layers]
    return table(["layer", *tasks], lines)


def _cell(summaries: Sequence[Summary], layer: str, task: str) -> str:
    matching = [summary for summary in summaries if (summary.layer, summary.task) == (layer, task)]
    best = [measured(summary) + ("" if _comparable(summary) else " *") for summary in matching] or ["–"]
    printed = [_printed(figure) for figure in figures(layer, task)]
    return " / ".join(best) + (f"; published {', '.join(printed)}" if printed else "; nothing published")


def _comparable(summary: Summary) -> bool:
    return summary.comparable and summary.profile is None


def _printed(figure: Figure) -> str:
    error = "" if figure.error is None else f" ({words.number(figure.error)})"
    number = FIGURES.index(figure) + 1
    return f"{figure.accuracy:.3f}{error} [{number}]"


def _sources(summaries: Sequence[Summary]) -> list[str]:
    shown = {(summary.layer, summary.task) for summary in summaries}
    layers, tasks = {layer for layer, _ in shown}, {task for _, task in shown}
    lines = [
        f"[{number}] {figure.source}" + (f": {figure.note}" if figure.note else "")
        for number, figure in enumerate(FIGURES, start=1)
        if figure.layer in layers and figure.task in tasks
    ]
    if not all(map(_comparable, summaries)):
        lines.append("An asterisk (*) marks other data or a smaller setting, which cannot be compared.")
    return lines
