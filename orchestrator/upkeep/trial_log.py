"""What workers have written to the log of a trial, read line by line.

The log is a file for people: what a function or a command prints is in it too, and may look like a line of
its worker. It is not flushed, so a loss of power may take its end.
"""

from __future__ import annotations

import calendar
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

LONGEST_LINE = 1 << 21
"""Bytes of the longest line that is read; a report is shorter."""


@dataclass(frozen=True)
class Started:
    """A worker's line about the start of an attempt.

    Attributes:
        attempt: number of the attempt within the trial.
        host: name of the worker's machine.
        process: id of the worker's process there.
        at: time of the line, in whole seconds since the epoch.
    """

    attempt: int
    host: str
    process: int
    at: float


@dataclass(frozen=True)
class ReportLine:
    """A line that looks like that of a worker about a report.

    Attributes:
        attempt: number of the attempt within the trial.
        step: of the report.
        shown: its metrics, as `name value, name value` with six digits.
        at: time of the line, in whole seconds since the epoch.
    """

    attempt: int
    step: int
    shown: str
    at: float


@dataclass(frozen=True)
class Damage:
    """A line that no worker has written whole; what else is missing cannot be known."""


Entry = Started | ReportLine | Damage

_LINE = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)Z attempt (\d{1,9}): ")
_STARTED = re.compile(rb"started at step \d+ on (\S+), process (\d{1,18})\n?")
_STEPPED = re.compile(rb"step (\d{1,16}): (.*)\n?", re.DOTALL)


def entries(lines: Iterable[bytes]) -> Iterator[Entry]:
    """Yield what the lines of a log say about starts, reports and damage."""
    for line in lines:
        if (head := _LINE.match(line)) is None or not line.endswith(b"\n"):
            yield Damage()
            continue
        rest, attempt = line[head.end() :], int(head[2])
        if rest.startswith(b"step ") and (match := _STEPPED.fullmatch(rest)):
            shown = match[2].decode("utf-8", "replace").removesuffix("\n")
            yield ReportLine(attempt, int(match[1]), shown, _seconds(head[1]))
        elif rest.startswith(b"started ") and (match := _STARTED.fullmatch(rest)):
            yield Started(attempt, match[1].decode("utf-8", "replace"), int(match[2]), _seconds(head[1]))


@lru_cache(maxsize=64)
def _seconds(stamp: bytes) -> float:
    try:
        return float(calendar.timegm(time.strptime(stamp.decode(), "%Y-%m-%d %H:%M:%S")))
    except ValueError:
        return 0.0


def lines_of(log: Path) -> Iterator[bytes]:
    """Yield the lines that a log has now, with their ends; none if it cannot be read or is no file.

    A line that is longer than `LONGEST_LINE` is yielded in parts, and the last one may lack its end.
    """
    try:
        # A pipe would make the opening wait for a writer.
        with os.fdopen(os.open(log, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            facts = os.fstat(file.fileno())
            left = facts.st_size if stat.S_ISREG(facts.st_mode) else 0
            while left > 0 and (line := file.readline(min(left, LONGEST_LINE))):
                left -= len(line)
                yield line
    except OSError:
        return
