"""A terminal for tests: a real pseudo-terminal, and the screen that its output makes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

_CODE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


@dataclass
class Screen:
    """The rows that a terminal shows; it wraps lines again when its width changes, as most terminals do.

    Attributes:
        width: columns.
        rows: of text, the earliest first; those that have left the screen are among them.
    """

    width: int
    rows: list[str] = field(default_factory=lambda: [""])
    _row: int = 0
    _column: int = 0
    _rest: str = ""

    def resize(self, width: int) -> None:
        """Change the width; rows that are longer are wrapped."""
        parts = [
            [row[at : at + width] for at in range(0, max(1, len(row.rstrip())), width)] for row in self.rows
        ]
        self._row += sum(len(wrapped) - 1 for wrapped in parts[: self._row + 1])
        self.rows = [part for wrapped in parts for part in wrapped]
        self.width = width

    def feed(self, text: str) -> None:
        """Receive what a program prints."""
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                code = _CODE.match(text, at)
                if code is None:
                    self._rest = text[at:]
                    return
                self._control(code[1], code[2])
                at = code.end()
                continue
            self._write(text[at])
            at += 1

    def _control(self, number: str, letter: str) -> None:
        if letter == "A":
            self._row = max(0, self._row - int(number or 1))
        elif letter == "K" and number == "2":
            self.rows[self._row] = ""

    def _write(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row, self._column = self._row + 1, 0
        else:
            if self._column == self.width:
                self._row, self._column = self._row + 1, 0
            self._extend()
            row = self.rows[self._row].ljust(self._column)
            self.rows[self._row] = row[: self._column] + character + row[self._column + 1 :]
            self._column += 1
        self._extend()

    def _extend(self) -> None:
        while len(self.rows) <= self._row:
            self.rows.append("")


@dataclass
class Terminal:
    """A program on a pseudo-terminal.

    Attributes:
        process: the program.
        screen: what the terminal shows.
        text: everything that the program has printed.
    """

    process: subprocess.Popen[bytes]
    screen: Screen
    text: str = ""
    _end: int = -1

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the terminal."""
        self.read(0.0)
        self.screen.resize(columns)
        _set_size(self._end, columns, rows)

    def read(self, seconds: float) -> bool:
        """Read what the program prints within some seconds; return False once it has closed the terminal."""
        if select.select([self._end], [], [], seconds)[0]:
            try:
                content = os.read(self._end, 65_536)
            except OSError:  # Linux reports the end of the other side as an input error
                return False
            self.text += content.decode()
            self.screen.feed(content.decode())
            return bool(content)
        return True

    def wait_for(self, holds: Callable[[Sequence[str]], bool], seconds: float = 60.0) -> None:
        """Read until the rows of the screen fulfil a condition."""
        last = time.monotonic() + seconds
        while not holds(self.screen.rows):
            assert time.monotonic() < last, "\n".join(self.screen.rows)
            assert self.read(0.2) or holds(self.screen.rows), "\n".join(self.screen.rows)


@contextmanager
def terminal(
    arguments: Sequence[str], environment: Mapping[str, str], columns: int, rows: int
) -> Iterator[Terminal]:
    """Run a command of the service on a pseudo-terminal, and end it at the end of a `with` block."""
    ours, its = pty.openpty()
    _set_size(its, columns, rows)
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.sweep", *arguments],
        env={**environment, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"},
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    try:
        yield Terminal(process, Screen(columns), _end=ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _set_size(end: int, columns: int, rows: int) -> None:
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
