"""The texts of a comparison of sweeps: tables and sentences, for Markdown and for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.counts import counted
from orchestrator.report import words
from orchestrator.report.answer import noise
from orchestrator.report.compare import SideBySide, Spent, SweepResult, TaskComparison
from orchestrator.report.markdown import SIZE_HEADER, bullets, size_cells, table
from orchestrator.report.published import FIGURES, Figure, figures
from orchestrator.report.statistics import CONFIDENCE, POWER, Difference

MARK = " (!)"
"""Behind a test result that is not established to differ from a control."""


@dataclass(frozen=True)
class ComparisonTable:
    """One part of a comparison.

    Attributes:
        title: its heading.
        header: of the table.
        rows: of the table.
        sentences: below the table.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    sentences: Sequence[str]


def markdown(compared: SideBySide) -> str:
    """Return a comparison as GitHub's Markdown."""
    parts = [
        part
        for section in tables(compared)
        for part in (f"## {section.title}", table(section.header, section.rows), bullets(section.sentences))
    ]
    return "\n\n".join(part for part in parts if part)


def tables(compared: SideBySide) -> list[ComparisonTable]:
    """Return the parts of a comparison: results, differences, and published results beside them."""
    return [_results(compared), *map(_differences, compared.comparisons), _published(compared)]


def _results(compared: SideBySide) -> ComparisonTable:
    confidence = words.share(CONFIDENCE, 1.0)
    header = ("sweep", "layer", "task", "validation", "test", f"{confidence} interval", "noise", "by seed")
    return ComparisonTable(
        "Sweeps",
        (*header, *SIZE_HEADER, "trials spent", "time", "state", "how"),
        [_line(result) for result in compared.results],
        [*_remarks(compared)],
    )


def _line(result: SweepResult) -> list[str]:
    estimate = result.estimate
    return [
        result.sweep_id,
        result.layer,
        result.task,
        words.number(result.validation),
        words.number(None if estimate is None else estimate.mean) + (MARK if result.doubts else ""),
        "–" if estimate is None else words.interval(estimate.low, estimate.high),
        "–" if estimate is None or not estimate.sources else noise(estimate.sources),
        ", ".join(map(words.number, result.values.values())) or "–",
        *size_cells(result.cost),
        _trials(result.spent),
        words.duration(result.spent.seconds),
        result.state.lower(),
        "as published" if result.comparable else result.why_not,
    ]


def _trials(spent: Spent) -> str:
    """Return the number of trials of the search, those that did not complete, and the confirmations."""
    others = [f"{count} {state.lower()}" for state, count in spent.trials.items() if state != "COMPLETE"]
    search = " ".join([str(sum(spent.trials.values())), *([f"({', '.join(others)})"] if others else [])])
    return f"{search} + {counted(spent.confirmations, 'confirmation')}" if spent.confirmations else search


def _remarks(compared: SideBySide) -> Iterator[str]:
    for result in compared.results:
        if result.estimate is not None and not result.fresh:
            yield f"{result.sweep_id}: the chosen trial alone; its seed was chosen with its hyperparameters."
        if result.missing:
            confirmations = counted(result.missing, "confirmation")
            yield f"{result.sweep_id}: {confirmations} failed or diverged, without a result."
        yield from (f"{result.sweep_id}{MARK}: {doubt}" for doubt in result.doubts)


def _differences(compared: TaskComparison) -> ComparisonTable:
    comparison = compared.comparison
    confidence = words.share(comparison.confidence, 1.0)
    return ComparisonTable(
        f"Differences on {compared.task}",
        (
            "difference",
            compared.metric,
            f"{confidence} interval, all together",
            "p (Holm)",
            "examples",
            "noise",
        ),
        [_difference(difference) for difference in comparison.differences],
        [*conclusion(compared)],
    )


def _difference(difference: Difference) -> list[str]:
    return [
        f"{difference.first} - {difference.second}",
        f"{difference.mean:+.4f}",
        words.interval(difference.low, difference.high),
        words.p_value(difference.p),
        "the same" if difference.paired else "other data",
        noise(difference.sources) if difference.sources else "–",
    ]


def conclusion(compared: TaskComparison) -> Iterator[str]:
    """Yield which sweep is the best one; or why none is named, and how many seeds would be enough."""
    comparison = compared.comparison
    if comparison.winner is not None:
        yield f"{comparison.winner} is better than every other sweep on {compared.task}."
    else:
        yield f"No sweep is named the best on {compared.task}: {comparison.reason}."
    if comparison.enough is not None:
        yield (
            f"{comparison.enough} seeds of each sweep would establish differences of this size with a "
            f"probability of {words.share(POWER, 1.0)}, if differences and noise are as measured."
        )
    if compared.left_out:
        yield f"Without a test result: {', '.join(compared.left_out)}."


def _published(compared: SideBySide) -> ComparisonTable:
    layers = list(dict.fromkeys(result.layer for result in compared.results))
    tasks = list(dict.fromkeys(result.task for result in compared.results))
    return ComparisonTable(
        "Layers and tasks: measured on test, and published",
        ["layer", *tasks],
        [[layer, *(_cell(compared, layer, task) for task in tasks)] for layer in layers],
        _sources(compared),
    )


def _cell(compared: SideBySide, layer: str, task: str) -> str:
    matching = [result for result in compared.results if (result.layer, result.task) == (layer, task)]
    best = [measured(result) + ("" if result.comparable else " *") for result in matching] or ["–"]
    printed = [_printed(figure) for figure in figures(layer, task)]
    return " / ".join(best) + (f"; published {', '.join(printed)}" if printed else "; nothing published")


def measured(result: SweepResult) -> str:
    """Return the mean over seeds with its interval and the number of seeds, or a dash."""
    estimate = result.estimate
    if estimate is None:
        return "–"
    interval = "" if estimate.low is None else f" [{words.interval(estimate.low, estimate.high)}]"
    count = len(result.values)
    return f"{words.number(estimate.mean)}{interval} ({counted(count, 'seed')})"


def _printed(figure: Figure) -> str:
    error = "" if figure.error is None else f" ({words.number(figure.error)})"
    number = FIGURES.index(figure) + 1
    return f"{figure.accuracy:.3f}{error} [{number}]"


def _unprinted(figure: Figure) -> str:
    """Return that nothing compares with a figure whose setting no paper prints; '' for the others."""
    return "; its setting is not printed, so no result compares with it" if figure.is_reproduction else ""


def _sources(compared: SideBySide) -> list[str]:
    layers = {result.layer for result in compared.results}
    tasks = {result.task for result in compared.results}
    lines = [
        f"[{number}] {figure.source}" + (f": {figure.note}" if figure.note else "") + _unprinted(figure)
        for number, figure in enumerate(FIGURES, start=1)
        if figure.layer in layers and figure.task in tasks
    ]
    if not all(result.comparable for result in compared.results):
        lines.append(
            "An asterisk (*) marks other data, another network or training, which cannot be compared."
        )
    return lines
