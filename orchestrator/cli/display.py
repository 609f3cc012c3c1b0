"""How verbs print: lines, JSON, and a line now and then about a running sweep."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.counts import counted
from orchestrator.output import Console


def print_line(line: str) -> None:
    """Print a line as it is, without wrapping, markup or colours."""
    Console(soft_wrap=True, highlight=False).print(line, markup=False)


def delivered_by(sweep_id: str) -> str:
    """Return what delivers the records of a sweep that no process drives."""
    return f"`sweep resume {sweep_id}` delivers them, and `serve` by itself if the sweep was submitted to it"


def waiting(count: int, how: str) -> str:
    """Return a sentence on records that MLflow has not received.

    Args:
        count: number of the records.
        how: what delivers them.
    """
    return f"{counted(count, 'record waits', 'records wait')} for MLflow; {how}."


def print_json(value: Any) -> None:
    """Print plain values as JSON, in which every character that is not ASCII is escaped."""
    Console(soft_wrap=True).print_json(json.dumps(value), ensure_ascii=True)
