"""The report for a pull request: the answer first, then the leaderboard and what went wrong."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from orchestrator.report import words
from orchestrator.report.answer import answer, notes
from orchestrator.report.summary import Row, Summary


def markdown(summary: Summary, rows: int = 20) -> str:
    """Return the report as GitHub's Markdown, with the first `rows` lines of the leaderboard."""
    parts = [
        f"# {summary.layer} on {summary.task}: `{summary.sweep_id}`",
        answer(summary),
        "\n".join(f"- {line}" for line in notes(summary)),
        "## Leaderboard",
        leaderboard(summary, summary.rows[:rows]),
        *_failures(summary),
        "## Where the time went",
        table(["part", "time", "share"], _spending(summary)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def leaderboard(summary: Summary, rows: Sequence[Row]) -> str:
    """Return lines of the leaderboard as a table."""
    header = ["#", "trial", summary.metric, summary.test_metric, "steps", "state", *summary.parameters]
    return table(header, [_cells(summary, row) for row in rows])


def leaderboard_csv(summary: Summary) -> str:
    """Return the whole leaderboard with full precision, for a spreadsheet or pandas."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "rank",
            "key",
            "state",
            summary.metric,
            summary.test_metric,
            "best_step",
            "step",
            *summary.parameters,
        ]
    )
    for row in summary.rows:
        fixed = [row.rank, row.key, row.state, row.value, row.test, row.best_step, row.step]
        writer.writerow([*fixed, *(row.params.get(name) for name in summary.parameters)])
    return out.getvalue()


def _cells(summary: Summary, row: Row) -> list[str]:
    rank = "" if row.rank is None else str(row.rank)
    steps = f"{row.step}/{row.total_steps}"
    settings = [words.setting(row.params.get(name, "–")) for name in summary.parameters]
    state = row.state.lower()
    return [rank, str(row.number), words.number(row.value), words.number(row.test), steps, state, *settings]


def _failures(summary: Summary) -> list[str]:
    if not summary.failures:
        return []
    return ["## Failures", table(["cause", "trials"], [[c, str(n)] for c, n in summary.failures.items()])]


def _spending(summary: Summary) -> list[list[str]]:
    total = summary.spending.total
    parts = summary.spending.parts().items()
    return [[name, words.duration(spent), words.share(spent, total)] for name, spent in parts if spent]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; what a cell says cannot break it."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_escaped(cell) for cell in line) + " |" for line in lines)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")
