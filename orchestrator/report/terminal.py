"""Results in a terminal: the leaderboard and the best trial of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from orchestrator.report import words
from orchestrator.report.answer import beside, front_text, notes
from orchestrator.report.leaderboard import TIME, columns
from orchestrator.report.summary import LeaderboardRow, Summary

_ROWS = 10
_LEFT_OUT = (TIME, "state floats", "FLOP a step")
_GAP = "  "


@dataclass(frozen=True)
class Directions:
    """Suggestions at the end of a sweep.

    Attributes:
        tracking: Command or address that opens MLflow.
        report: HTML report, or None if none was written.
        evaluate: Command that evaluates the chosen checkpoint again.
    """

    tracking: str
    report: str | None
    evaluate: str


def show(summary: Summary, directions: Directions, console: Console) -> None:
    """Print the result of a sweep, with colours and a limited width if the console is a terminal."""
    for line in [Text(""), _headline(summary), Text(""), *_leaderboard(summary, _width(console)), Text("")]:
        _print(console, line)
    for line in [*_answer(summary), *_where_next(summary, directions)]:
        _print(console, line)


def _print(console: Console, line: Text) -> None:
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def _width(console: Console) -> int:
    """Return the maximum width of a table, which is unlimited in a file."""
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
    shown, table = summary.rows[:_ROWS], list[list[str]]()
    for column in columns(summary, shown):
        cells = [column.title, *column.texts]
        cells = [cell.rjust(max(map(len, cells))) for cell in cells]
        is_wide = sum(len(row[0]) + len(_GAP) for row in [*table, cells]) > width
        if column.title not in _LEFT_OUT and not (is_wide and column.title in summary.parameters):
            table.append(cells)
    header, *lines = (_GAP.join(cells).rstrip() for cells in zip(*table, strict=True))
    chosen = summary.chosen.row.key if summary.chosen else None
    texts = [
        Text(header, style="bold"),
        *(Text(line, style=_style(row, chosen)) for line, row in zip(lines, shown, strict=True)),
    ]
    if len(summary.rows) > len(shown):
        texts.append(Text(f"… and {len(summary.rows) - len(shown)} more in the report", style="dim"))
    return texts


def _style(row: LeaderboardRow, chosen: str | None) -> str:
    early = {"FAILED": "red", "DIVERGED": "yellow", "PRUNED": "dim"}
    return "green" if row.key == chosen or row.on_front else early.get(row.state, "")


def _answer(summary: Summary) -> list[Text]:
    chosen = summary.chosen
    lines = []
    if chosen is None and (text := front_text(summary)):
        lines.append(Text(text.replace("**", ""), style="bold"))
    elif chosen is None:
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
