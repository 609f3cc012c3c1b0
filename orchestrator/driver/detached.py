"""Detached drivers: processes in their own session, with a log that a terminal can follow."""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from orchestrator import process_secrets
from orchestrator.system import DETACHED, lower_session

DETACH = "SWEEP_DETACH"
"""Environment variable: if set, commands that run a sweep start a detached driver and follow it."""

NOTIFY = "SWEEP_NOTIFY"
"""Environment variable: default of `--notify`."""

DEADLINE_SECONDS = 600.0
"""Default of `--deadline`: longest time without progress or report of a running attempt."""

TRACKING_SECONDS = 60.0
"""Default of `--tracking-patience`: longest wait for MLflow at the end of a sweep."""

POLL_SECONDS = 0.5
LAST_BYTES = 4000
"""Maximum size in bytes of the end of a log that `last_lines` returns."""

Show = Callable[[str], None]


def begin(
    arguments: Sequence[str], log: Path, variables: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    """Start a driver in its own session; its output is appended to a log, which is created if necessary.

    Args:
        arguments: Arguments of Python, such as `-m MODULE WORD ...`; `--detach` is removed.
        log: Log of the sweep's drivers.
        variables: Further environment variables of the driver.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    own = [word for word in arguments if word != "--detach"]
    environment = {name: value for name, value in os.environ.items() if name != DETACH}
    environment, secrets = process_secrets.parted({**environment, **variables, DETACHED: "1"})
    with log.open("ab") as out:
        driver = subprocess.Popen(
            [sys.executable, "-u", *own],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    lower_session(driver.pid)
    assert driver.stdin is not None, "it is a pipe"
    with suppress(BrokenPipeError), driver.stdin:  # if it has ended already, its log has the reason
        driver.stdin.write(secrets)
    return driver


def end_of(log: Path) -> int:
    """Return the size of a log in bytes; 0 if it does not exist."""
    return log.stat().st_size if log.exists() else 0


def last_lines(log: Path) -> int:
    """Return the offset of the last complete lines of a log, in bytes."""
    start = max(0, end_of(log) - LAST_BYTES)
    if start == 0:
        return 0
    with log.open("rb") as file:
        file.seek(start)
        return start + len(file.readline())


def last_line(log: Path) -> str:
    """Return the last non-empty line of a log, or an empty string."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(last_lines(log))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def follow(log: Path, start: int, over: Callable[[], bool], show: Show) -> None:
    """Show the output of a driver from byte `start` of its log on, until `over` returns True."""
    with log.open("rb") as file:
        file.seek(start)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            ended = over()  # before reading, so that nothing printed before the end is missed
            show(decoder.decode(file.read(), final=ended))
            if ended:
                return
            time.sleep(POLL_SECONDS)
