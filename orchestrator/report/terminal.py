"""Results in a terminal: the end of a sweep with its leaderboard and its answer, and sweeps side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from orchestrator.report import words
from orchestrator.report.answer import beside, notes
from orchestrator.report.compare import SideBySide
from orchestrator.report.comparison_text import tables
from orchestrator.report.summary import LeaderboardRow, Summary

_ROWS = 10
_GAP = "  "


@dataclass(frozen=True)
class Directions:
    """Where to look next.

    Attributes:
        tracking: the command to type, or the address to open, for MLflow.
        report: the HTML report, or None if none was written.
        evaluate: the command that evaluates the chosen checkpoint again.
    """

    tracking: str
    report: str | None
    evaluate: str


def show(summary: Summary, directions: Directions, console: Console) -> None:
    """Print the result of a sweep, with colours and limited width only on a terminal."""
    for line in [Text(""), _headline(summary), Text(""), *_leaderboard(summary, _width(console)), Text("")]:
        _print(console, line)
    for line in [*_answer(summary), *_where_next(summary, directions)]:
        _print(console, line)


def show_comparison(compared: SideBySide, console: Console) -> None:
    """Print a comparison of sweeps as tables whose columns are aligned."""
    for section in tables(compared):
        columns = [
            [cell.ljust(max(map(len, cells))) for cell in cells]
            for cells in zip(section.header, *section.rows, strict=True)
        ]
        header, *lines = (_GAP.join(cells).rstrip() for cells in zip(*columns, strict=True))
        styled = [Text(section.title, style="bold green"), Text(header, style="bold"), *map(Text, lines)]
        for line in [*styled, *(Text(f"  {sentence}") for sentence in section.sentences), Text("")]:
            _print(console, line)


def _print(console: Console, line: Text) -> None:
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def _width(console: Console) -> int:
    """Return the columns that a table may take: those of the terminal, or any number in a file."""
    return console.width if console.is_terminal else 10_000


def _headline(summary: Summary) -> Text:
    states = ", ".join(f"{count} {state.lower()}" for state, count in sorted(summary.states.items()))
    reason = f" ({summary.reason})" if summary.reason else ""
    profile = f" · profile {summary.profile}" if summary.profile else ""
    return Text.assemble(
        (summary.sweep_id, "bold"), f" · {summary.state}{reason}{profile} · trials: {states or 'none'}"
    )


def _leaderboard(summary: Summary, width: int) -> list[Text]:
    """Return the lines of the table, without the hyperparameters that do not fit the width."""
    shown = summary.rows[:_ROWS]
    columns = [
        _column("#", ["" if row.rank is None else str(row.rank) for row in shown]),
        _column("trial", [str(row.number) for row in shown]),
        _column(summary.metric, words.numbers([row.value for row in shown])),
        _column("steps", [f"{row.step}/{row.total_steps}" for row in shown]),
        _column("state", [row.state.lower() for row in shown]),
    ]
    if not summary.runs_script:
        sizes = [words.count(row.cost.parameters if row.cost else None) for row in shown]
        columns.insert(3, _column(summary.test_metric, words.numbers([row.test for row in shown])))
        columns.append(_column("parameters", sizes))
    for name in summary.parameters:
        column = _column(name, [words.setting(row.params.get(name, "–")) for row in shown])
        if sum(len(cells[0]) + len(_GAP) for cells in [*columns, column]) <= width:
            columns.append(column)
    header, *lines = (_GAP.join(cells).rstrip() for cells in zip(*columns, strict=True))
    chosen = summary.chosen.row.key if summary.chosen else None
    table = [
        Text(header, style="bold"),
        *(Text(line, style=_style(row, chosen)) for line, row in zip(lines, shown, strict=True)),
    ]
    if len(summary.rows) > len(shown):
        table.append(Text(f"… and {len(summary.rows) - len(shown)} more in the report", style="dim"))
    return table


def _column(title: str, cells: Sequence[str]) -> list[str]:
    width = max(map(len, [title, *cells]))
    return [cell.rjust(width) for cell in [title, *cells]]


def _style(row: LeaderboardRow, chosen: str | None) -> str:
    return {"FAILED": "red", "PRUNED": "dim"}.get(row.state, "green" if row.key == chosen else "")


def _answer(summary: Summary) -> list[Text]:
    chosen = summary.chosen
    lines = []
    if chosen is None:
        lines.append(Text("No trial is complete, so none is chosen.", style="bold"))
    else:
        settings = ", ".join(f"{name} {words.setting(value)}" for name, value in chosen.row.params.items())
        lines += [
            Text.assemble("Chosen: ", (chosen.row.key, "bold green"), f" (step {chosen.row.best_step})"),
            Text(f"  {settings}"),
            _score(summary, summary.metric, chosen.row.value, "validation"),
        ]
        if not summary.runs_script:
            lines.append(_score(summary, summary.test_metric, chosen.row.test, "test"))
    lines += [Text(f"  {line}") for line in notes(summary)]
    for cause, count in summary.failures.items():
        details = f": {summary.details[cause]}" if summary.details[cause] else ""
        lines.append(Text(f"Failed: {count} × {cause}{details}", style="red"))
    return lines


def _score(summary: Summary, metric: str, value: float | None, split: str) -> Text:
    if value is None:
        return Text(f"  {metric} was not evaluated")
    return Text.assemble(f"  {metric} ", (words.number(value), "bold"), beside(summary, split))


def _where_next(summary: Summary, directions: Directions) -> list[Text]:
    rows = [("MLflow", f'{directions.tracking} (experiment "{summary.task}")')]
    if directions.report is not None:
        rows.append(("Report", directions.report))
    if summary.chosen is not None:
        if summary.chosen.checkpoint is not None:
            rows.append(("Checkpoint", words.near(Path(summary.chosen.checkpoint))))
        if not summary.runs_script:
            rows.append(("Evaluate", directions.evaluate))
    if summary.state in ("INTERRUPTED", "PAUSED"):
        rows.append(("Resume", "run the same command again"))
    return [Text(""), Text("Where to look next", style="bold"), *(Text(f"  {a:<10} {b}") for a, b in rows)]
