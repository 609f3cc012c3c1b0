"""The columns of a leaderboard, for the terminal, Markdown, HTML and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from orchestrator.placeholders import plain
from orchestrator.report import words
from orchestrator.report.summary import LeaderboardRow, Summary
from trainables.cost import Cost

SIZES = {"parameters": "parameters", "state floats": "state_floats", "FLOP a step": "flops"}
"""Headings of the sizes of a network, with the attribute of `Cost` that each column shows."""

TIME = "time"


@dataclass(frozen=True)
class Column:
    """A column of the leaderboard.

    Attributes:
        title: Heading.
        texts: Cell of each row, formatted.
        values: Value of each row, to sort by.
    """

    title: str
    texts: Sequence[str]
    values: Sequence[Any]


def columns(summary: Summary, rows: Sequence[LeaderboardRow]) -> Iterator[Column]:
    """Yield the columns of some rows in which a row has a value, the hyperparameters last."""
    for column in _all_columns(summary, rows):
        if not rows or any(value is not None for value in column.values):
            yield column


def _all_columns(summary: Summary, rows: Sequence[LeaderboardRow]) -> Iterator[Column]:
    yield _column("#", [row.rank for row in rows], empty="")
    yield _column("trial", [row.number for row in rows])
    yield _measured(summary.metric, [row.value for row in rows])
    if summary.front is not None:
        for name in list(summary.front.objectives)[1:]:
            yield _measured(name, [row.further.get(name) for row in rows])
        yield Column("front", ["yes" if row.on_front else "" for row in rows], [row.on_front for row in rows])
    if not summary.runs_script:
        yield _measured(summary.test_metric, [row.test for row in rows])
    yield Column("steps", [f"{row.step}/{row.total_steps}" for row in rows], [row.step for row in rows])
    yield _column("state", [row.state.lower() for row in rows])
    yield Column(TIME, [words.duration(row.seconds) for row in rows], [row.seconds for row in rows])
    if not summary.runs_script:
        sizes = list(zip(*(size_cells(row.cost) for row in rows), strict=True)) or [()] * len(SIZES)
        for (title, name), texts in zip(SIZES.items(), sizes, strict=True):
            yield Column(title, texts, [getattr(row.cost, name, None) for row in rows])
    for name in summary.parameters:
        settings = [words.setting(row.params.get(name, "–")) for row in rows]
        yield Column(
            name, settings, [plain(row.params[name]) if name in row.params else None for row in rows]
        )


def _column(title: str, values: Sequence[Any], empty: str = "–") -> Column:
    return Column(title, [empty if value is None else str(value) for value in values], values)


def _measured(metric: str, values: Sequence[float | None]) -> Column:
    return Column(metric, words.numbers(values), values)


def size_cells(cost: Cost | None) -> list[str]:
    """Return the cells below the headings of `SIZES`."""
    if cost is None:
        return [words.count(None)] * len(SIZES)
    return [words.count(cost.parameters), words.count(cost.state_floats), words.amount(cost.flops)]


def leaderboard_csv(summary: Summary) -> str:
    """Return the whole leaderboard as CSV, with full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    costs = () if summary.runs_script else tuple(field.name for field in fields(Cost))
    tested = () if summary.runs_script else (summary.test_metric,)
    further = [] if summary.front is None else list(summary.front.objectives)[1:]
    names = summary.parameters
    fixed = ["rank", "key", "state", summary.metric, *tested, "best_step", "step"]
    fixed += [*further, "front"] if further else []
    writer.writerow(map(words.inert, [*fixed, *costs, *names]))
    for row in summary.rows:
        values = [row.rank, row.key, row.state, row.value, *((row.test,) if tested else ())]
        values += [row.best_step, row.step]
        values += [*map(row.further.get, further), "yes" if row.on_front else ""] if further else []
        values += [getattr(row.cost, name, None) for name in costs]
        settings = (plain(row.params[name]) if name in row.params else None for name in names)
        writer.writerow(map(words.inert, [*values, *settings]))
    return out.getvalue()
