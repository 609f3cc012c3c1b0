"""Observers of a driver, which receive its messages and progress, and its log, which prints them."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator import json_log
from orchestrator.json_log import LogLine
from orchestrator.report.words import number, time_left
from orchestrator.session.board import Progress

if TYPE_CHECKING:  # the Python API does not import rich
    from orchestrator.output import Console

ORDER = ("RUNNING", "WAITING", "PREEMPTED", "COMPLETE", "PRUNED", "DIVERGED", "FAILED")
"""States of trials in display order."""

_LINE_EVERY_SECONDS = 30.0
_LOG = logging.getLogger("orchestrator")


class Observer:
    """Receives the messages and the progress of a sweep; a subclass overrides the methods that it needs.

    The methods are called in the thread that runs the sweep, which waits for them.
    """

    def say(self, line: str) -> None:
        """Receive one message. By default, log it at level INFO under the name `orchestrator`."""
        _LOG.info(line)

    def loading(self, what: str, done: int, total: int) -> None:
        """Receive the progress of preparing a data set. By default, do nothing."""

    def show(self, progress: Progress) -> None:
        """Receive the progress of the sweep, about twice a second. By default, do nothing."""

    def close(self) -> None:
        """Called once, after the last trial has ended. By default, do nothing."""


@dataclass
class Display(Observer):
    """Prints the messages of one sweep, and its progress every 30 s, at its first value and at its end.

    Attributes:
        console: Console to print to.
        metric: Name of the objective, shown beside the best value.
        quiet: Whether to leave out the progress.
    """

    console: Console
    metric: str
    quiet: bool = False
    _printed_at: float = field(default=-_LINE_EVERY_SECONDS)
    _printed: str = ""
    _has_value: bool = False

    def say(self, line: str) -> None:
        """Print a message."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def loading(self, what: str, done: int, total: int) -> None:
        """Print the progress of preparing the data set."""
        self._draw(f"{what}: {done:,} of {total:,}", at_once=done >= total)

    def show(self, progress: Progress) -> None:
        """Print the progress of the sweep."""
        is_first = progress.best_value is not None and not self._has_value
        self._has_value = self._has_value or is_first
        self._draw(describe(progress, self.metric), at_once=is_first or progress.settled >= progress.wanted)

    def _draw(self, line: str, *, at_once: bool) -> None:
        if self.quiet:
            return
        now = time.monotonic()
        if line != self._printed and (at_once or now - self._printed_at >= _LINE_EVERY_SECONDS):
            self.say(line)
            self._printed_at, self._printed = now, line


@dataclass
class StructuredLog(Observer):
    """Logs the messages of one sweep, each new best trial, and its progress every 30 s and at the end.

    Attributes:
        sweep_id: ID of the sweep.
        metric: Name of the objective.
    """

    sweep_id: str
    metric: str
    _best: float | None = field(default=None, init=False)
    _logged_at: float = field(default=-_LINE_EVERY_SECONDS, init=False)
    _logged: str = field(default="", init=False)

    def say(self, line: str) -> None:
        """Log a message."""
        json_log.log(LogLine(line, sweep=self.sweep_id))

    def loading(self, what: str, done: int, total: int) -> None:
        """Log the end of preparing a data set."""
        if done >= total:
            json_log.log(LogLine(f"{what}: {total:,}", "loaded", self.sweep_id))

    def show(self, progress: Progress) -> None:
        """Log what has changed."""
        if progress.best_value is not None and progress.best_value != self._best:
            self._best = progress.best_value
            best = f"best {self.metric} {number(self._best)}"
            json_log.log(LogLine(best, "best", self.sweep_id, progress.best_key))
        line, now = describe(progress, self.metric), time.monotonic()
        is_over = progress.settled >= progress.wanted
        if line != self._logged and (is_over or now - self._logged_at >= _LINE_EVERY_SECONDS):
            self._logged_at, self._logged = now, line
            json_log.log(LogLine(line, "progress", self.sweep_id))


def describe(progress: Progress, metric: str) -> str:
    """Describe the progress of a sweep in one line.

    The line has the trials by state, the reason for waiting, the best trial and the remaining time.
    """
    states = ", ".join(
        f"{progress.states[name]} {name.lower()}" for name in ORDER if progress.states.get(name)
    )
    parts = [f"trials {progress.settled}/{progress.wanted}" + (f" ({states})" if states else "")]
    if progress.reason is not None:
        parts.append(f"{progress.state}: {progress.reason}")
    if progress.best_value is not None:
        state = f", {progress.best_state.lower()}" if progress.best_state in ("RUNNING", "PRUNED") else ""
        parts.append(f"best {metric} {number(progress.best_value)} ({progress.best_key}{state})")
    if progress.time_left is not None and progress.settled < progress.wanted:
        parts.append(time_left(progress.time_left))
    return " · ".join(parts)


def profile_note(profile: str, why: str) -> str:
    """Return the message about the profile of a sweep and the reason of its choice."""
    return (
        f"Profile `{profile}` ({why}) replaces settings of the file; the profile `full` is the file as it is."
    )
