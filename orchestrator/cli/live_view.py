"""The live view of a sweep on a terminal: lines redrawn in place, and messages that stay above them."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import rich.console
from rich.console import ConsoleOptions, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from orchestrator.cli.frame import frame
from orchestrator.client.answers import LiveSweep
from orchestrator.client.following import follow as follow_sweep
from orchestrator.client.protocol import Backend
from orchestrator.console import Console
from orchestrator.driver.log import Display, Observer
from orchestrator.errors import Exit, Refusal
from orchestrator.output import write
from orchestrator.session.board import Progress

REDRAWS_PER_SECOND = 4

_READ_EVERY_SECONDS = 1.0
_LARGEST_SHARE = 0.05
_PROGRESS_LINE = re.compile(r"trials \d+/\d+( \(| ·|$)")

Read = Callable[[], LiveSweep]
"""A function that returns the live view of a sweep."""


def is_live(console: Console, *, plain: bool = False) -> bool:
    """Return True if a console can redraw lines: it is a terminal, and neither `plain` nor `CI` is set."""
    return console.is_terminal and not console.is_dumb_terminal and not plain and not os.environ.get("CI")


@dataclass
class Screen:
    """A renderable of a sweep, from which rich requests lines for the size of the terminal.

    Attributes:
        sweep: Sweep that is shown, or None before it has been read.
        loading: Progress of preparing a data set, or None.
        trouble: Reason why the last read failed, or None.
    """

    sweep: LiveSweep | None = None
    loading: str | None = None
    trouble: str | None = None
    _drawn: list[Text] = field(default_factory=list)

    def __rich_console__(self, console: rich.console.Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines that fit the current size of the terminal."""
        width, height = options.max_width, options.size.height
        lines = [] if self.sweep is None else frame(self.sweep, width, height)
        notes = [Text(note, style="dim") for note in (self.loading, self.trouble) if note is not None]
        for note in notes:
            note.truncate(width, overflow="ellipsis")
        self._drawn = lines = [*lines[: max(0, height - 1 - len(notes))], *notes]
        yield from lines

    def wrapped(self, width: int) -> int:
        """Return the number of additional rows after the terminal has wrapped the drawn lines at `width`."""
        return sum(max(0, -(-line.cell_len // width) - 1) for line in self._drawn)


class ResizableLive(Live):
    """A live display that also erases the rows that a narrower terminal has added by wrapping its lines.

    Args:
        screen: Content of the display.
        console: Console of the terminal.
    """

    def __init__(self, screen: Screen, console: Console) -> None:
        super().__init__(screen, console=console, refresh_per_second=REDRAWS_PER_SECOND, transient=True)
        self._shown, self._width = screen, console.width

    def refresh(self) -> None:
        """Redraw the lines."""
        with self.console:
            width = self.console.width
            if width < self._width:
                extra = self._shown.wrapped(width)
                erase_row = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
                self.console.control(Control(*(erase_row * extra)))
            self._width = width
            super().refresh()


class LiveView:
    """Shows a sweep on a terminal and reads it again once a second, in a thread of its own.

    A large sweep, which takes long to read, is read less often, so that reading takes at most a twentieth of
    the time.

    Args:
        read: Reads the sweep. A refusal, such as that of a ledger that does not answer, is shown as a note.
        console: Console of the terminal.

    Attributes:
        finished: Event that is set when the view is closed.
    """

    def __init__(self, read: Read, console: Console) -> None:
        self.console, self.screen = console, Screen()
        self._read, self._live = read, ResizableLive(self.screen, console)
        self.finished = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="live view", daemon=True)

    def start(self) -> None:
        """Start reading and drawing."""
        self._live.start()
        self._thread.start()

    def say(self, line: str) -> None:
        """Print a line above the view; it stays."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Stop reading, and erase the view."""
        if not self.finished.is_set():
            self.finished.set()
            self._thread.join()
            self._live.stop()

    def _watch(self) -> None:
        pause = 0.0
        while not self.finished.wait(pause):
            began = time.monotonic()
            try:
                self.screen.sweep, self.screen.trouble = self._read(), None
            except Refusal as refusal:
                # A sweep that was never read has not begun: its driver is still at its checks.
                self.screen.trouble = str(refusal) if self.screen.sweep is not None else None
            pause = max(_READ_EVERY_SECONDS, (time.monotonic() - began) / _LARGEST_SHARE)


@dataclass
class LiveDisplay(Observer):
    """Shows the messages and the progress of a sweep that this process drives, on a terminal.

    Attributes:
        view: View of the sweep.
    """

    view: LiveView
    _started: bool = False

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self.view.say(line)

    def loading(self, what: str, done: int, total: int) -> None:
        """Show the progress of preparing the data set."""
        self._start()
        self.view.screen.loading = f"{what}: {done:,} of {total:,}" if done < total else None

    def show(self, progress: Progress) -> None:
        """Begin to show the sweep; the view reads the progress from the ledger, as for any other process."""
        self._start()

    def close(self) -> None:
        """Erase the view."""
        if self._started:
            self.view.close()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self.view.start()


def observer(read: Read, console: Console, metric: str, *, quiet: bool, plain: bool) -> Display | LiveDisplay:
    """Return the observer of a sweep that this process drives.

    Args:
        read: Reads the sweep.
        console: Where to print.
        metric: Name of the objective.
        quiet: Whether to print only messages.
        plain: Whether to print lines on a terminal too.
    """
    if quiet or not is_live(console, plain=plain):
        return Display(console, metric, quiet)
    return LiveDisplay(LiveView(read, console))


@contextmanager
def shown_live(read: Read, *, plain: bool) -> Iterator[Callable[[str], None] | None]:
    """Show a sweep for the length of a `with` block, if standard output is a terminal.

    Yields:
        A function that prints text above the view, in whole lines and without lines of progress; None without
        a view.
    """
    console = Console(soft_wrap=True)
    if not is_live(console, plain=plain):
        yield None
        return
    view = LiveView(read, console)
    lines = Lines(view.say)
    view.start()
    try:
        yield lines
    finally:
        lines("\n")
        view.close()


@dataclass
class Lines:
    """Splits text into lines, and passes on those that do not show progress.

    Attributes:
        say: Receives a line.
    """

    say: Callable[[str], None]
    _rest: str = ""

    def __call__(self, text: str) -> None:
        """Receive text as a driver prints it."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if not _PROGRESS_LINE.match(line):
                self.say(line)


_TRACE = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


@dataclass
class Traces:
    """Passes on the output of a driver, with only the last line of a traceback.

    Attributes:
        show: Receives whole lines.
        sweep_id: ID of the sweep, whose log has the whole traceback.
    """

    show: Callable[[str], None]
    sweep_id: str
    _rest: str = ""
    _inside: bool = False
    _last: str | None = None

    def __call__(self, text: str) -> None:
        """Receive text as a driver prints it."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._receive(line)

    def close(self) -> None:
        """Pass on what is left after the last line."""
        if self._rest:
            self._receive(self._rest)
            self._rest = ""
        self._end()

    def _receive(self, line: str) -> None:
        if line == _TRACE:
            self._inside, self._last = True, None
        elif self._inside and (not line or line[0].isspace() or line in _CHAINED):
            return
        elif self._inside and self._last is None:
            self._last = line
        else:
            self._end()
            self.show(f"{line}\n")

    def _end(self) -> None:
        if self._inside and self._last is not None:
            self.show(f"{self._last}\nThe whole trace: `sweep logs {self.sweep_id}`\n")
        self._inside, self._last = False, None


def follow(backend: Backend, sweep: str, start: int | None = None, *, plain: bool) -> int:
    """Follow a sweep from a position in its log; return its exit code, or 5 after Ctrl-C."""
    now = backend.status(sweep)
    if now.driver and now.submission is None:
        write(f"{now.driver[:1].upper()}{now.driver[1:]} drives {now.id}.\n")
    return watched(backend, now.id, lambda show: follow_sweep(backend, now.id, show, start), plain=plain)


def watched(
    backend: Backend, sweep_id: str, watch: Callable[[Callable[[str], None]], int], *, plain: bool
) -> int:
    """Watch a sweep, with a live view on a terminal; return its exit code, or 5 after Ctrl-C."""
    try:
        with shown_live(lambda: backend.live(sweep_id), plain=plain) as show:
            folded = Traces(show or write, sweep_id)
            try:
                return watch(folded)
            finally:
                folded.close()
    except KeyboardInterrupt:
        write(f"{sweep_id} is still running; `follow {sweep_id}` shows it, `stop {sweep_id}` stops it.\n")
        return Exit.STILL_RUNNING
