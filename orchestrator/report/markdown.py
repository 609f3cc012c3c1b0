"""The report as Markdown, for a pull request: the answer first, then the leaderboard and the failures.

Texts that come from users, workers or data sets are escaped: none of them can start a line, a table cell, a
link, code or HTML.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from orchestrator.report import words
from orchestrator.report.answer import answer, notes
from orchestrator.report.summary import LeaderboardRow, Summary
from trainables.cost import Cost

_SPECIAL = re.compile(r"([\\`<|]|(?<=\])\()")
"""The characters that start code, HTML or a table cell, and the bracket that makes a link."""


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a cell begins with that a spreadsheet runs; the last four are wide forms of the first four."""


def markdown(summary: Summary, rows: int = 20) -> str:
    """Return the report as GitHub's Markdown, with the first `rows` lines of the leaderboard."""
    parts = [
        f"# {plain(summary.layer)} on {plain(summary.task)}: `{summary.sweep_id}`",
        answer(summary),
        bullets(notes(summary)),
        "## Leaderboard",
        leaderboard(summary, summary.rows[:rows]),
        *_failures(summary),
        "## Where the time went",
        table(["part", "time", "share"], _spending(summary)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def leaderboard(summary: Summary, rows: Sequence[LeaderboardRow]) -> str:
    """Return lines of the leaderboard as a table."""
    columns = {
        "#": ["" if row.rank is None else str(row.rank) for row in rows],
        "trial": [str(row.number) for row in rows],
        summary.metric: words.numbers([row.value for row in rows]),
        **({} if summary.runs_script else {summary.test_metric: words.numbers([row.test for row in rows])}),
        "steps": [f"{row.step}/{row.total_steps}" for row in rows],
        "state": [row.state.lower() for row in rows],
    }
    header, cells = [*columns], [*zip(*columns.values(), strict=True)]
    if not summary.runs_script:
        header += SIZE_HEADER
        cells = [(*own, *size_cells(row.cost)) for own, row in zip(cells, rows, strict=True)]
    settings = [[words.setting(row.params.get(name, "–")) for name in summary.parameters] for row in rows]
    lines = [[*own, *of_row] for own, of_row in zip(cells, settings, strict=True)]
    return table([*header, *summary.parameters], lines)


def inert(cell: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula: after an apostrophe if it begins like one."""
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def leaderboard_csv(summary: Summary) -> str:
    """Return the whole leaderboard with full precision, for a spreadsheet or pandas."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    costs, tested = ((), ()) if summary.runs_script else (COSTS, (summary.test_metric,))
    fixed = ["rank", "key", "state", summary.metric, *tested, "best_step", "step"]
    writer.writerow(map(inert, [*fixed, *costs, *summary.parameters]))
    for row in summary.rows:
        values = [row.rank, row.key, row.state, row.value, *((row.test,) if tested else ())]
        values += [row.best_step, row.step, *(getattr(row.cost, name, None) for name in costs)]
        writer.writerow(map(inert, [*values, *(row.params.get(name) for name in summary.parameters)]))
    return out.getvalue()


SIZE_HEADER = ("parameters", "state floats", "FLOP a step")

COSTS = tuple(field.name for field in fields(Cost))


def size_cells(cost: Cost | None) -> list[str]:
    """Return the cells below `SIZE_HEADER`."""
    if cost is None:
        return [words.count(None)] * len(SIZE_HEADER)
    return [words.count(cost.parameters), words.count(cost.state_floats), words.amount(cost.flops)]


def _failures(summary: Summary) -> list[str]:
    if not summary.failures:
        return []
    rows = [[cause, str(count), summary.details[cause]] for cause, count in summary.failures.items()]
    return ["## Failures", table(["cause", "trials", "what happened first"], rows)]


def _spending(summary: Summary) -> list[list[str]]:
    total = summary.spending.total
    parts = summary.spending.parts().items()
    return [[name, words.duration(spent), words.share(spent, total)] for name, spent in parts if spent]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose cells are plain texts."""
    lines = [[plain(cell) for cell in line] for line in (header, *rows)]
    lines.insert(1, ["---"] * len(header))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bullets(lines: Iterable[str]) -> str:
    """Return plain texts as a list."""
    return "\n".join(f"- {plain(line)}" for line in lines)


def plain(text: str) -> str:
    """Return a text on one line, in which no character starts a table cell, a link, code or HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
