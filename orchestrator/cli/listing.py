"""The table that the verb `list` prints, of sweeps of this machine or of a service."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Column, Table

from orchestrator.output import Console

_WIDE = 120
"""Columns of a terminal that has room for the task, which an id mostly says, and for the time of day."""

_LONGEST_ID = 40
"""Characters of an id that stay on one line."""

_UNLIMITED = 10_000
"""Columns of what is no terminal: a program that reads the rows finds each on one line."""


@dataclass(frozen=True)
class ListedSweep:
    """A row of the table.

    Attributes:
        id: of the sweep.
        state: of the sweep.
        owner: in whose name it runs, or None if it was not submitted.
        task: that it trains, or the name of its trainable.
        trials: their number by state.
        created_at: when it began, seconds since the epoch.
    """

    id: str
    state: str
    owner: str | None
    task: str
    trials: Mapping[str, int]
    created_at: float


def print_sweeps(listed: Sequence[ListedSweep], console: Console | None = None) -> None:
    """Print a row for each sweep; on a terminal no line is wider than it, and no word is cut.

    Args:
        listed: the sweeps, in this order.
        console: where to print; standard output if None.
    """
    console = console or Console()
    if not console.is_terminal:
        console.width = _UNLIMITED
    is_wide = console.width >= _WIDE
    is_short = all(len(entry.id) <= _LONGEST_ID for entry in listed)
    columns = [
        Column("sweep", no_wrap=is_short or is_wide, overflow="fold"),
        Column("state", no_wrap=True),
        *([Column("owner", overflow="fold")] if any(entry.owner for entry in listed) else []),
        *([Column("task", overflow="fold")] if is_wide else []),
        Column("trials"),
        Column("started", no_wrap=True),
    ]
    day = "%Y-%m-%d %H:%M" if is_wide else "%Y-%m-%d"
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for entry in listed:
        cells = {
            "sweep": entry.id,
            "state": entry.state,
            "owner": entry.owner or "",
            "task": entry.task,
            "trials": ", ".join(f"{count} {state.lower()}" for state, count in entry.trials.items()),
            "started": time.strftime(day, time.localtime(entry.created_at)),
        }
        table.add_row(*(cells[str(column.header)] for column in columns))
    console.print(table)
