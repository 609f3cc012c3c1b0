"""A driver process that has imported everything and waits for the sweep that it is to drive.

The imports of a driver take longer than the first report of a small trial. A service therefore keeps one
process that has done them (`orchestrator.ready`) and hands it the command line of the next driver. It is
used only if it runs the code that is on disk; without it, or if it has died, a driver starts as always. It
is one line of JSON each way, after the variables that hold secrets:

    in   {"NAME": "value", ...}
    out  ready
    in   {"arguments": [...], "log": ..., "variables": {...}, "code": ...}
    out  taken
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator import concealment
from orchestrator.driver import detached
from orchestrator.machines import warmth
from orchestrator.provenance import code_digest
from orchestrator.system import DETACHED, System

SETTLE_SECONDS = 15.0
"""A next process is started so long after a driver, if that still runs: its imports would slow the start."""

RETRY_SECONDS = 60.0
"""Wait after a process has ended before it was ready."""

ANSWER_SECONDS = 2.0
"""Longest wait for a process that is ready to take a sweep."""

READY, TAKEN = b"ready\n", b"taken\n"


class ReadyDriver:
    """The service's end: keeps at most one process that is ready, and hands sweeps to it.

    Args:
        root: folder of everything that sweeps write.
        seconds: for which a process is kept after the last sweep; 0 for none.
        system: of this process.
        module: that is run.
    """

    def __init__(
        self, root: Path, seconds: float, system: System = System(), *, module: str = "orchestrator.ready"
    ) -> None:
        self._command = [sys.executable, "-u", "-m", module, str(root)]
        self._seconds, self._system = seconds, system
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = False
        self._used_at = self._not_before = system.monotonic()

    def tend(self, *, busy: bool) -> None:
        """Start a process if one may be needed soon; end one that is not needed, or whose memory is.

        Args:
            busy: whether a driver runs that this service has started.
        """
        now = self._system.monotonic()
        if self._process is not None and self._process.poll() is not None:
            self._not_before = now if self._is_ready() else now + RETRY_SECONDS
            self.end()
        if now - self._used_at >= self._seconds or warmth.memory_is_short():
            self.end()
            return
        settled = not busy or now - self._used_at >= SETTLE_SECONDS
        if self._process is None and settled and now >= self._not_before:
            self._start()

    def begin(
        self, arguments: Sequence[str], log: Path, variables: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a driver: in the process that is ready if there is one, else as `detached.begin` does.

        Args:
            arguments: command line of the driver.
            log: of the sweep's drivers; created if it is missing.
            variables: environment variables to set for the driver, besides those of this process.
        """
        self._used_at = self._system.monotonic()
        order = {
            "arguments": list(arguments),
            "log": str(log.absolute()),
            "variables": {**variables, DETACHED: "1"},
            "code": code_digest(),
        }
        if (process := self._process) is not None and self._is_ready() and self._takes(process, order):
            self._forget()
            return process
        self.end()
        return detached.begin(arguments, log, variables)

    def end(self) -> None:
        """End the process that waits, if there is one."""
        if (process := self._process) is not None:
            process.kill()
            process.wait()
            self._forget()

    def _start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != detached.DETACH}
        environment, secrets = concealment.parted(environment)
        self._process = subprocess.Popen(
            self._command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):  # it has ended, which `tend` notices
            self._process.stdin.write(secrets)
            self._process.stdin.flush()

    def _forget(self) -> None:
        assert self._process is not None, "called with a process"
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "both are pipes"
            with suppress(BrokenPipeError):
                pipe.close()
        self._process, self._answers = None, False

    def _is_ready(self) -> bool:
        """Return True if the process has announced that everything is imported."""
        assert self._process is not None, "called with a process"
        self._answers = self._answers or self._answer(self._process, 0.0) == READY
        return self._answers

    def _takes(self, process: subprocess.Popen[bytes], order: Mapping[str, object]) -> bool:
        """Hand the order to the process; return True once it has taken it."""
        assert process.stdin is not None, "stdin is a pipe"
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return False
        return self._answer(process, ANSWER_SECONDS) == TAKEN

    def _answer(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        """Return the next answer of the process, or nothing if none comes within `seconds`."""
        assert process.stdout is not None, "stdout is a pipe"
        if not select.select([process.stdout], [], [], seconds)[0]:
            return b""
        return os.read(process.stdout.fileno(), len(READY))
