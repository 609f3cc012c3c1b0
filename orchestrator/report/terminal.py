"""Results in a terminal: the leaderboard and the best trial of a sweep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.text import Text

from orchestrator.errors import counted
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
    width = _width(console)
    _print(console, [Text(""), _headline(summary), Text("")], is_prose=True)
    _print(console, [*_leaderboard(summary, width), Text("")])
    _print(console, _answer(summary), is_prose=True)
    _print(console, _where_next(summary, directions, width))


def _print(console: Console, lines: Iterable[Text], *, is_prose: bool = False) -> None:
    """Print lines; a terminal gets prose wrapped between words, with the indentation of its first line."""
    for line in lines:
        indent = len(line.plain) - len(line.plain.lstrip())
        if is_prose and console.is_terminal and line.cell_len > console.width > indent:
            parts = line[indent:].wrap(console, console.width - indent)
            wrapped = [Text.assemble(" " * indent, part) for part in parts]
        else:
            wrapped = [line]
        for part in wrapped:
            console.print(part, soft_wrap=True, highlight=False, markup=False)


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
    """Return the lines of the table, without the columns at its right that do not fit the width."""
    shown = summary.rows[:_ROWS]
    known = [column for column in columns(summary, shown) if column.title not in _LEFT_OUT]
    table = [
        [cell.rjust(max(map(len, cells))) for cell in cells]
        for cells in ([column.title, *column.texts] for column in known)
    ]
    while len(table) > 1 and sum(len(cells[0]) for cells in table) + len(_GAP) * (len(table) - 1) > width:
        table.pop()
    header, *lines = (_GAP.join(cells).rstrip() for cells in zip(*table, strict=True))
    chosen = summary.chosen.row.key if summary.chosen else None
    texts = [
        Text(header, style="bold"),
        *(Text(line, style=_style(row, chosen)) for line, row in zip(lines, shown, strict=True)),
    ]
    if left_out := len(known) - len(table):
        texts.append(Text(f"… +{counted(left_out, 'column')}", style="dim"))
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
        first = ", the first" if count > 1 else ""
        details = f"{first}: {summary.details[cause]}" if summary.details[cause] else ""
        lines.append(Text(f"Failed: {count} × {cause}{details}", style="red"))
    return lines


def _score(summary: Summary, metric: str, value: float | None, split: str) -> Text:
    if value is None:
        return Text(f"  {metric} was not evaluated")
    return Text.assemble(f"  {metric} ", (words.number(value), "bold"), beside(summary, split))


def _where_next(summary: Summary, directions: Directions, width: int) -> list[Text]:
    """Return the lines of the suggestions; one that does not fit beside its name has a line of its own."""
    rows = [("MLflow", Text(directions.tracking, style=_link(directions.tracking)))]
    if directions.report is not None:
        rows.append(("Report", _path(Path(directions.report))))
    if summary.chosen is not None:
        if summary.chosen.checkpoint is not None:
            rows.append(("Checkpoint", _path(Path(summary.chosen.checkpoint))))
        if not summary.runs_script:
            rows.append(("Evaluate", Text(directions.evaluate)))
    if summary.state in ("INTERRUPTED", "PAUSED"):
        rows.append(("Resume", Text("run the same command again")))
    lines = [Text(""), Text("Where to look next", style="bold")]
    for name, value in rows:
        line = Text.assemble(f"  {name:<10} ", value)
        fits = line.cell_len <= width
        lines += [line] if fits else [Text(f"  {name}"), Text.assemble("    ", value)]
    return lines


def _path(path: Path) -> Text:
    """Return a path relative to the working directory, a link where the terminal has links."""
    return Text(words.near(path), style=_link(path.absolute().as_uri()))


def _link(address: str) -> Style:
    """Return the style of a link (OSC 8) to a URL, and no style for any other text."""
    return Style(link=address) if address.startswith(("http://", "https://", "file://")) else Style()
