"""How the process of a command that drives or serves sweeps is left: with its code, whatever signal comes.

Before a sweep has a driver, and after it, a signal has nothing to save. It must still not end the process
with a code of its own: a batch system would take a complete sweep for a crash, and systemd a service that it
has stopped for one that has failed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from orchestrator.errors import Exit
from orchestrator.system import SIGNALS, handled, interrupt


def run_and_leave(
    run: Callable[[Sequence[str]], int], arguments: Sequence[str], interrupted: int = Exit.RESUMABLE
) -> NoReturn:
    """Run a command line that drives or serves sweeps and end this process with its exit code.

    Signals that this process was started to ignore, as by `nohup`, stay ignored.

    Args:
        run: runs the command line; returns its exit code.
        arguments: of the command line.
        interrupted: exit code after a signal outside a driver and a service.
    """
    for name in handled():
        signal.signal(name, interrupt)
    try:
        code = run(arguments)
    except KeyboardInterrupt:
        code = interrupted
    leave(code)


def leave(code: int) -> NoReturn:
    """End this process at once with a code; signals no longer change it.

    The sweep is over and its files are closed. The end of the interpreter would take a second, in which a
    signal ends the process with another code, and in which threads of libraries have crashed; and it would
    wait for every request that a service is still answering.
    """
    for name in SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)
