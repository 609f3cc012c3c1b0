"""Output of commands: escaping of text, and behaviour when the reader is gone or the disk is full.

Scripts, names and metrics can contain control sequences, which rename a terminal's window, move its cursor or
fill its clipboard. A verb therefore prints by `Console` and `write`, which escape them.

A command that only shows something ends as other tools do. One that drives sweeps or serves goes on without
its output: `sweep FILE | head` must not end a sweep of a day.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import signal
import sys
from importlib import import_module
from io import BufferedWriter, TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator import json_log
from orchestrator.errors import DISK_FULL, BadInput, Exit, NoSpace, Refusal, exit_of
from orchestrator.json_log import LogLine

if TYPE_CHECKING:
    from orchestrator.console import Console as Console

CLOSED = 128 + signal.SIGPIPE
"""Exit code of a command whose reader has gone: that of a program which SIGPIPE has ended in a shell."""


_EXECUTED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1, without tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns the direction of text
    "\u2028\u2029\ud800-\udfff]"  # further ends of lines; halves of characters
)


def __getattr__(name: str) -> Any:
    """Import the console on first use, so that a verb that prints plain lines does not wait for rich."""
    if name != "Console":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _console()


def _console() -> type[Console]:
    return import_module("orchestrator.console").Console


def escaped(text: str) -> str:
    """Return a text with its control characters escaped, which could move the cursor or hide other text."""
    lines = text.replace("\r\n", "\n")
    return _EXECUTED.sub(lambda found: found.group().encode("unicode_escape").decode(), lines)


def write(text: str) -> None:
    """Print a text at once, without wrapping, markup or colours."""
    if sys.stdout is None:  # the process was started without it
        return
    sys.stdout.write(escaped(text))
    sys.stdout.flush()


def write_raw(text: str) -> None:
    """Print a text as it is, to a file or a pipe.

    Raises:
        BadInput: Standard output is a terminal.
    """
    if sys.stdout.isatty():
        remedy = "Leave it out, or write to a file: `logs TRIAL --raw > FILE`."
        raise BadInput("--raw", "must write to a file or a pipe", "a terminal", remedy)
    sys.stdout.write(text)
    sys.stdout.flush()


class _Output(io.FileIO):
    """The file of an output stream, which drops all output after a failed write.

    Args:
        descriptor: Descriptor of the stream.
        goes_on: Whether the command continues after that.
    """

    def __init__(self, descriptor: int, *, goes_on: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._goes_on = goes_on

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EPIPE and error.errno not in DISK_FULL:
                raise
            self._drop()
            if self._goes_on:
                return len(data)
            if error.errno == errno.EPIPE:
                raise SystemExit(CLOSED) from None
            remedy = "Free some space, or write to another file."
            raise NoSpace("standard output", "cannot be written", os.strerror(error.errno), remedy) from None

    def _drop(self) -> None:
        """Discard the buffered output at the end of the process."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def protect(*, goes_on: bool) -> None:
    """Wrap both output streams of this process, so that a closed pipe or a missing character raises no
    traceback.

    Args:
        goes_on: Whether the command continues after its standard output is closed or full. It always
            continues without standard error.
    """
    sys.stdout = _protected(sys.stdout, goes_on=goes_on)
    sys.stderr = _protected(sys.stderr, goes_on=True)


def _protected(stream: TextIO, *, goes_on: bool) -> TextIO:
    if not isinstance(stream, TextIOWrapper):  # None if the process was started without it
        return stream
    stream.flush()
    output = _Output(stream.fileno(), goes_on=goes_on)
    return TextIOWrapper(
        output if stream.write_through else BufferedWriter(output),
        encoding=stream.encoding,
        errors="replace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


_UNUSABLE_PATH = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG}
)
"""Error numbers of a path that the user has misspelt or may not use. Others are defects."""


def print_error(line: str) -> None:
    """Print a line to standard error, or log it as an error if the log is JSON."""
    if json_log.is_json():
        json_log.log(LogLine(line, "error"), logging.ERROR)
        return
    _console()(stderr=True, soft_wrap=True, highlight=False).print(line, style="red", markup=False)


def print_refusal(error: Refusal | OSError) -> int:
    """Print a user's mistakes to standard error, one line each, and return the exit code.

    Raises:
        OSError: The error is not about a path that the user has named.
    """
    if isinstance(error, Refusal):
        for one in error.all():
            print_error(str(one))
        return exit_of(error)
    if error.filename is None or error.errno not in _UNUSABLE_PATH:
        raise error
    print_error(
        f"{error.filename} must be usable (got {error.strerror}). Name another, or change its rights."
    )
    return Exit.BAD_INPUT
