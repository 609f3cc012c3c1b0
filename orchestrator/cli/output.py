"""What a command does when nobody reads its output any more, or the disk that takes it is full.

A command that only shows something ends as other tools do. One that drives sweeps or serves goes on without
its output: `sweep FILE | head` must not end a sweep of a day.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from io import BufferedWriter, TextIOWrapper
from typing import Any, TextIO

from orchestrator.errors import DISK_FULL, NoSpace

CLOSED = 128 + signal.SIGPIPE
"""Exit code of a command whose reader has gone: that of a program which SIGPIPE has ended in a shell."""


class _Output(io.FileIO):
    """The file of an output stream; once it takes no more, what follows is dropped.

    Args:
        descriptor: of the stream.
        goes_on: whether the command goes on then.
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
            remedy = "Free some, or write to another file."
            raise NoSpace("standard output", "must have space", os.strerror(error.errno), remedy) from None

    def _drop(self) -> None:
        """Have the end of the process write what it still holds to nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def protect(*, goes_on: bool) -> None:
    """Replace both output streams of this process; characters that the locale lacks are replaced in them too.

    Args:
        goes_on: whether the command goes on once its standard output takes no more. It always does without
            its standard error.
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
