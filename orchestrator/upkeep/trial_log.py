"""Line-by-line parser of the log that workers write for a trial.

The log is a file for people. It also has the output of functions and commands, which may look like a line of
their worker. It is not flushed to disk, so a power failure may remove its end.
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
"""Maximum length in bytes of a line that is read; a report is shorter."""


@dataclass(frozen=True)
class Started:
    """A worker's line about the start of an attempt.

    Attributes:
        attempt: Number of the attempt within the trial.
        host: Name of the worker's machine.
        process: Id of the worker's process there.
        at: Time of the line, in whole seconds since the epoch.
    """

    attempt: int
    host: str
    process: int
    at: float


@dataclass(frozen=True)
class ReportLine:
    """A line that looks like a worker's line about a report.

    Attributes:
        attempt: Number of the attempt within the trial.
        step: Step of the report.
        shown: Metrics of the report, as `name value, name value` with six digits.
        at: Time of the line, in whole seconds since the epoch.
    """

    attempt: int
    step: int
    shown: str
    at: float


@dataclass(frozen=True)
class Damage:
    """An incomplete line of a worker; further lines may be missing."""


Entry = Started | ReportLine | Damage

_LINE = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)Z attempt (\d{1,9}): ")
_STARTED = re.compile(rb"started at step \d+ on (\S+), process (\d{1,18})\n?")
_STEPPED = re.compile(rb"step (\d{1,16}): (.*)\n?", re.DOTALL)


def entries(lines: Iterable[bytes]) -> Iterator[Entry]:
    """Yield the starts, reports and damage in the lines of a log."""
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
    """Yield the present lines of a log with their line ends; none if it is not a readable file.

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
