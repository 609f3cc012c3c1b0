"""How verbs print: lines, JSON, and the live display of a running sweep.

The display is redrawn in place on a terminal, and is a line now and then anywhere else.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from orchestrator import Observer, Progress
from orchestrator.report.words import duration

_LINE_EVERY_SECONDS = 30.0
_ORDER = ("RUNNING", "WAITING", "PREEMPTED", "COMPLETE", "PRUNED", "FAILED")


def print_line(line: str) -> None:
    """Print a line as it is, without wrapping, markup or colours."""
    Console(soft_wrap=True, highlight=False).print(line, markup=False)


def print_json(value: Any) -> None:
    """Print plain values as JSON."""
    Console(soft_wrap=True).print_json(json.dumps(value))


@dataclass
class Display(Observer):
    """Prints the messages and the progress of one sweep.

    Attributes:
        console: where to print.
        metric: name of the objective, shown beside the best value.
        quiet: whether to print messages alone.
    """

    console: Console
    metric: str
    quiet: bool = False
    _live: Live | None = None
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

    def close(self) -> None:
        """Stop redrawing; the last line stays on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, line: str, *, settled: bool) -> None:
        if self.quiet:
            return
        if self.console.is_terminal:
            if self._live is None:
                self._live = Live(console=self.console, refresh_per_second=4)
                self._live.start()
            self._live.update(Text(line))
            return
        now = time.monotonic()
        if line != self._printed and (settled or now - self._printed_at >= _LINE_EVERY_SECONDS):
            self.say(line)
            self._printed_at, self._printed = now, line


def describe(progress: Progress, metric: str) -> str:
    """Return one line: trials by state, why the sweep waits, the best trial so far, the time left."""
    states = ", ".join(
        f"{progress.states[name]} {name.lower()}" for name in _ORDER if progress.states.get(name)
    )
    parts = [f"trials {progress.settled}/{progress.wanted}" + (f" ({states})" if states else "")]
    if progress.reason is not None:
        parts.append(f"{progress.state}: {progress.reason}")
    if progress.best_value is not None:
        parts.append(f"best {metric} {progress.best_value:.4f} ({progress.best_key})")
    if progress.seconds_left is not None and progress.settled < progress.wanted:
        parts.append(f"about {duration(progress.seconds_left)} left")
    return " · ".join(parts)
