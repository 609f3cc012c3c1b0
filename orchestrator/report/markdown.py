"""The report of a sweep in Markdown.

Texts of users, workers and data sets are escaped: they cannot start a line, a table cell, a link, code or
HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from orchestrator.report import words
from orchestrator.report.answer import answer, notes
from orchestrator.report.leaderboard import TIME, columns
from orchestrator.report.summary import LeaderboardRow, Summary

_SPECIAL = re.compile(r"([\\`<|]|(?<=\])\()")
"""Characters that start code, HTML or a table cell, and the bracket that makes a link."""


def markdown(summary: Summary, rows: int = 20) -> str:
    """Return the report in GitHub's Markdown, with the first `rows` rows of the leaderboard."""
    spending = summary.spending
    spent = [
        [name, words.duration(seconds), words.share(seconds, spending.total)]
        for name, seconds in spending.parts().items()
        if seconds
    ]
    parts = [
        f"# {plain(summary.layer)} on {plain(summary.task)}: `{summary.sweep_id}`",
        answer(summary),
        bullets(notes(summary)),
        "## Leaderboard",
        leaderboard(summary, summary.rows[:rows]),
        *_front(summary),
        *_failures(summary),
        "## Where the time went",
        table(["part", "time", "share"], spent),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def leaderboard(summary: Summary, rows: Sequence[LeaderboardRow]) -> str:
    """Return rows of the leaderboard as a table."""
    shown = [column for column in columns(summary, rows) if column.title != TIME]
    lines = [[column.texts[index] for column in shown] for index in range(len(rows))]
    return table([column.title for column in shown], lines)


def _front(summary: Summary) -> list[str]:
    front = summary.front
    if front is None or not front.trials:
        return []
    names = list(front.objectives)
    rows = [
        [trial.label, *(words.number(trial.values[name]) for name in names), str(trial.step)]
        for trial in front.trials
    ]
    return ["## Pareto front", table(["trial", *names, "step"], rows)]


def _failures(summary: Summary) -> list[str]:
    if not summary.failures:
        return []
    rows = [[cause, str(count), summary.details[cause]] for cause, count in summary.failures.items()]
    return ["## Failures", table(["cause", "trials", "what happened first"], rows)]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain texts."""
    lines = [[plain(cell) for cell in line] for line in (header, *rows)]
    lines.insert(1, ["---"] * len(header))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bullets(lines: Iterable[str]) -> str:
    """Return plain texts as a bulleted list."""
    return "\n".join(f"- {plain(line)}" for line in lines)


def plain(text: str) -> str:
    """Return a text on one line, escaped so that it starts no table cell, link, code or HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
