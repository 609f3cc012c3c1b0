"""A driver as a process of its own, and who follows it: a lost terminal ends only the following."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

DETACH = "SWEEP_DETACH"
"""Environment variable: whether the verbs that run a sweep start a driver of its own and follow it."""

LOOK_SECONDS = 0.5
LAST_BYTES = 4000

Show = Callable[[str], None]


def begin(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a driver in a session of its own; whatever it prints is appended to its log.

    Args:
        arguments: of this command line; the driver is given the same ones.
        log: of the sweep's drivers; made if need be.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    own = [word for word in arguments if word != "--detach"]
    environment = {name: value for name, value in os.environ.items() if name != DETACH}
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-u", "-m", "orchestrator.sweep", *own],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end_of(log: Path) -> int:
    """Return where what a driver prints from now on begins, in bytes."""
    return log.stat().st_size if log.exists() else 0


def last_lines(log: Path) -> int:
    """Return where the last lines of a log begin, in bytes: enough to see where a sweep stands."""
    start = max(0, end_of(log) - LAST_BYTES)
    if start == 0:
        return 0
    with log.open("rb") as file:
        file.seek(start)
        return start + len(file.readline())


def follow(log: Path, start: int, over: Callable[[], bool], show: Show) -> None:
    """Show what a driver prints until it is over, and then the rest of it."""
    with log.open("rb") as file:
        file.seek(start)
        while True:
            last = over()  # asked first, so that nothing printed before the end is missed
            show(file.read().decode(errors="replace"))
            if last:
                return
            time.sleep(LOOK_SECONDS)
