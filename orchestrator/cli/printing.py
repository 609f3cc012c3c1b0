"""Printing of lines, JSON and tables."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from orchestrator import output
from orchestrator.client.statuses import Status
from orchestrator.errors import counted
from orchestrator.ledger.people.user_records import Note
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP
from orchestrator.ledger.sweeps.standing import BestTrial
from orchestrator.output import write
from orchestrator.report.words import TitledTable, duration, number, setting

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

    from orchestrator.output import Console

_WIDE = 120
"""Columns of a terminal with room for the task and the time of day."""

_LONGEST_ID = 40
"""Characters of an ID that a terminal shows; of a longer one, the beginning and the end."""

_UNLIMITED = 10_000
"""Columns without a terminal: a program finds each row on one line."""


def print_line(line: str) -> None:
    """Print a line as it is, without wrapping, markup or colours."""
    write(f"{line.expandtabs()}\n")


def print_json(value: Any) -> None:
    """Print plain values as JSON, with every character that is not ASCII escaped; to a terminal in colours.

    Rich takes seconds to colour the list of 1,000 sweeps.
    """
    if sys.stdout is not None and sys.stdout.isatty():
        output.Console(soft_wrap=True).print_json(json.dumps(value), ensure_ascii=True)
    else:
        write(json.dumps(value, indent=2).replace("\x7f", "\\u007f") + "\n")


def print_answer(answer: Any, line: str, *, as_json: bool) -> None:
    """Print an answer of the client, as JSON or as a line.

    Args:
        answer: Dataclass of the answer.
        line: Line for people.
        as_json: Whether to print JSON.
    """
    if as_json:
        print_json(asdict(answer))
    else:
        print_line(line)


def submitted(sweep_id: str, *, is_added: bool) -> str:
    """Return the line about a sweep that was submitted; `is_added` is False for a repeated submission."""
    return f"{sweep_id} is submitted.\n" if is_added else f"{sweep_id} was submitted before.\n"


def print_warnings(warnings: Sequence[str]) -> None:
    """Print the warnings for the owner of a sweep to standard error."""
    for text in warnings:
        output.Console(stderr=True, soft_wrap=True, highlight=False).print(f"warning: {text}", markup=False)


def deliverer(sweep_id: str) -> str:
    """Return the command or service that delivers the MLflow records of a sweep without a driver."""
    return f"`sweep resume {sweep_id}` delivers them, and `serve` by itself if the sweep was submitted to it"


def undelivered(count: int, how: str) -> str:
    """Return a sentence about records that MLflow has not received, and what delivers them."""
    return f"{counted(count, 'record waits', 'records wait')} for MLflow; {how}."


def best_line(now: Status) -> str | None:
    """Return the best value so far and its trial, such as `best loss 0.25 (trial 2, running, step 3 of 9)`.

    None without a value.
    """
    if now.best is None:
        return None
    best = now.best
    steps = f"step {best.step} of {best.total_steps}"
    where = "" if best.state == "COMPLETE" else f", {best.state.lower()}, {steps}"
    return f"best {now.metric} {number(best.value)} (trial {best.label}{where})"


def settings_line(params: Mapping[str, Any]) -> str:
    """Return hyperparameters on one line."""
    return " · ".join(f"{name} {setting(value)}" for name, value in params.items())


def shortened(text: str, most: int = _LONGEST_ID) -> str:
    """Return a text of at most `most` characters, without some in its middle: IDs differ at their ends."""
    if len(text) <= most:
        return text
    end = (most - 1) // 3
    return f"{text[: most - 1 - end]}…{text[-end:]}"


def _result(entry: Status) -> BestTrial | None:
    """Return the chosen trial of a sweep that has ended, and the best one so far of any other."""
    return entry.chosen if entry.state in FINISHED_SWEEP and entry.chosen is not None else entry.best


def _counts(entry: Status) -> dict[str, int]:
    """Return the trials of a sweep by state, and how many of them are on its Pareto front."""
    on_front = {} if entry.on_front is None else {"on the Pareto front": entry.on_front}
    return {**{state.lower(): count for state, count in entry.trials.items()}, **on_front}


def print_sweeps(listed: Sequence[Status], console: Console | None = None) -> None:
    """Print a row for each sweep; on a terminal no line is wider than it, and only IDs are shortened.

    Args:
        listed: The sweeps, in this order.
        console: Where to print; standard output if None.
    """
    if console is None and (sys.stdout is None or not sys.stdout.isatty()):
        rows = _rows(listed, is_wide=True, is_terminal=False)
        lengths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (
                cell.rjust(length) if name == "best" else cell.ljust(length)
                for name, cell, length in zip(rows[0], row, lengths, strict=True)
            )
            print_line("  ".join(cells).rstrip())
        return
    from rich.table import Column, Table

    console = console or output.Console()
    if not console.is_terminal:
        console.width = _UNLIMITED
    header, *rows = _rows(listed, is_wide=console.width >= _WIDE, is_terminal=console.is_terminal)
    columns = [
        Column(
            name,
            no_wrap=name in {"sweep", "state", "best", "left", "started"},
            overflow="fold" if name in {"owner", "task", "tags"} else "ellipsis",
            justify="right" if name == "best" else "left",
        )
        for name in header
    ]
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _rows(listed: Sequence[Status], *, is_wide: bool, is_terminal: bool) -> list[list[str]]:
    """Return the header of the table of sweeps and its rows, without the columns that no sweep fills.

    Args:
        listed: The sweeps, in this order.
        is_wide: Whether there is room for the task and the time of day.
        is_terminal: Whether to shorten long IDs.
    """
    has_best = any(entry.best is not None for entry in listed)
    shown = {
        "sweep": True,
        "state": True,
        "owner": any(entry.owner for entry in listed),
        "task": is_wide,
        "trials": True,
        "best": has_best,
        "left": any(entry.time_left is not None for entry in listed),
        "started": is_wide or not has_best,
        "tags": any(_marks(entry) for entry in listed),
    }
    day = "%Y-%m-%d %H:%M" if is_wide else "%Y-%m-%d"
    header = [name for name, is_shown in shown.items() if is_shown]
    rows = [header]
    for entry in listed:
        cells = {
            "sweep": shortened(entry.id) if is_terminal else entry.id,
            "state": entry.state,
            "owner": entry.owner or "",
            "task": entry.task,
            "trials": ", ".join(f"{count} {what}" for what, count in _counts(entry).items()),
            "best": number(best.value) if (best := _result(entry)) is not None else "",
            "left": "" if entry.time_left is None else duration(entry.time_left.likely),
            "started": time.strftime(day, time.localtime(entry.created_at)),
            "tags": _marks(entry),
        }
        rows.append([cells[name] for name in header])
    return rows


def note_lines(note: Note | None) -> list[str]:
    """Return the lines of a note: its tags, its text and its author."""
    if note is None:
        return ["No note."]
    marks = _marks(note)
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(note.at))
    return [*([marks] if marks else []), *note.text.splitlines(), f"({note.author}, {at})"]


def _marks(entry: Note | Status) -> str:
    """Return the tags of a sweep or a trial, after the word for a favourite."""
    return ", ".join([*(["favourite"] if entry.favourite else []), *entry.tags])


def print_tables(tables: Sequence[TitledTable], console: RichConsole | None = None) -> None:
    """Print tables with aligned columns, by default on standard output."""
    from rich.text import Text

    console = console or output.Console(soft_wrap=True)
    for table in tables:
        columns = [
            [cell.ljust(max(map(len, cells))) for cell in cells]
            for cells in zip(table.header, *table.rows, strict=True)
        ]
        header, *lines = ("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))
        styled = [Text(table.title, style="bold green"), Text(header, style="bold"), *map(Text, lines)]
        for line in [*styled, *(Text(f"  {sentence}") for sentence in table.sentences), Text("")]:
            console.print(line, soft_wrap=True, highlight=False, markup=False)
