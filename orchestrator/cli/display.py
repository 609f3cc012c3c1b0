"""How verbs print: lines, JSON, and a line now and then about a running sweep."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from orchestrator import Observer, Progress
from orchestrator.cli.frame import ORDER
from orchestrator.cli.output import Console
from orchestrator.counts import counted
from orchestrator.report.words import duration, number

_LINE_EVERY_SECONDS = 30.0


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


@dataclass
class Display(Observer):
    """Prints the messages of one sweep, and a line about its progress every 30 s and at the end.

    Attributes:
        console: where to print.
        metric: name of the objective, shown beside the best value.
        quiet: whether to print messages alone.
    """

    console: Console
    metric: str
    quiet: bool = False
    _printed_at: float = field(default=-_LINE_EVERY_SECONDS)
    _printed: str = ""

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def loading(self, what: str, done: int, total: int) -> None:
        """Show how much of the data set has been prepared."""
        self._draw(f"{what}: {done:,} of {total:,}", settled=done >= total)

    def show(self, progress: Progress) -> None:
        """Show the progress of the sweep."""
        self._draw(describe(progress, self.metric), settled=progress.settled >= progress.wanted)

    def _draw(self, line: str, *, settled: bool) -> None:
        if self.quiet:
            return
        now = time.monotonic()
        if line != self._printed and (settled or now - self._printed_at >= _LINE_EVERY_SECONDS):
            self.say(line)
            self._printed_at, self._printed = now, line


def describe(progress: Progress, metric: str) -> str:
    """Return one line: trials by state, why the sweep waits, the best trial so far, the time left."""
    states = ", ".join(
        f"{progress.states[name]} {name.lower()}" for name in ORDER if progress.states.get(name)
    )
    parts = [f"trials {progress.settled}/{progress.wanted}" + (f" ({states})" if states else "")]
    if progress.reason is not None:
        parts.append(f"{progress.state}: {progress.reason}")
    if progress.best_value is not None:
        parts.append(f"best {metric} {number(progress.best_value)} ({progress.best_key})")
    if progress.seconds_left is not None and progress.settled < progress.wanted:
        parts.append(f"about {duration(progress.seconds_left)} left")
    return " · ".join(parts)
