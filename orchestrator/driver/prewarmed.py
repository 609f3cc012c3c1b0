"""Prewarmed driver: a process that has imported everything and waits for a sweep to drive.

The imports of a driver take longer than the first report of a small trial. A service therefore keeps one
prewarmed process, `python -m orchestrator.driver --prewarm`, and sends it the arguments of the next driver.
The process is used only if it runs the code on disk. Without such a process, a driver starts cold. The
process ends with the service that started it, unless it has taken a sweep.

The protocol is one line of JSON each way, after the variables that hold secrets:

    in   {"NAME": "value", ...}
    out  ready
    in   {"arguments": [...], "log": ..., "variables": {...}, "code": ...}
    out  taken
"""

from __future__ import annotations

import gc
import json
import os
import select
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from orchestrator import process_secrets
from orchestrator.driver import detached
from orchestrator.machines import idle_timeout
from orchestrator.provenance import code_digest
from orchestrator.schedule import environment
from orchestrator.storage.paths import Paths
from orchestrator.system import DETACHED, System

MODULE = "orchestrator.driver"
"""Module of the driver's entry point."""

NEEDED = ("orchestrator.driver.execution", "sqlalchemy.dialects.sqlite")
"""Modules that a driver imports late, except those of the report, which it needs after its search."""

SETTLE_SECONDS = 15.0
"""Time after the start of a driver before the next process is prewarmed, so that it does not slow that
start."""

RETRY_SECONDS = 60.0
"""Wait after a process that ended before it was ready."""

ANSWER_SECONDS = 2.0
"""Time limit for a ready process to take a sweep."""

READY, TAKEN = b"ready\n", b"taken\n"


class PrewarmedDriver:
    """Keeps at most one prewarmed process, and starts drivers in it.

    Args:
        root: Folder of everything that sweeps write.
        seconds: Idle timeout of the process after the last sweep; 0 for none.
        system: Clock of this process.
        module: Module of the entry point.
    """

    def __init__(
        self, root: Path, seconds: float, system: System = System(), *, module: str = MODULE
    ) -> None:
        self._module = module
        self._command = [sys.executable, "-u", "-m", module, "--prewarm", "--root", str(root)]
        self._seconds, self._system = seconds, system
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = False
        self._used_at = self._not_before = system.monotonic()

    def tend(self, *, busy: bool) -> None:
        """Start a process if one may be needed soon; end it after its idle timeout or if memory is short.

        `busy` means that a driver of this service runs.
        """
        now = self._system.monotonic()
        if self._process is not None and self._process.poll() is not None:
            self._not_before = now if self._is_ready() else now + RETRY_SECONDS
            self.end()
        if now - self._used_at >= self._seconds or idle_timeout.memory_is_short():
            self.end()
            return
        settled = not busy or now - self._used_at >= SETTLE_SECONDS
        if self._process is None and settled and now >= self._not_before:
            self._start()

    def begin(
        self, arguments: Sequence[str], log: Path, variables: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a driver in the prewarmed process, or else cold.

        The arguments are those of `python -m orchestrator.driver`.
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
        return detached.begin(["-m", self._module, *arguments], log, variables)

    def end(self) -> None:
        """End the waiting process, if there is one."""
        if (process := self._process) is not None:
            process.kill()
            process.wait()
            self._forget()

    def _start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != detached.DETACH}
        environment, secrets = process_secrets.parted(environment)
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
        """Return True if the process has imported everything."""
        assert self._process is not None, "called with a process"
        self._answers = self._answers or self._answer(self._process, 0.0) == READY
        return self._answers

    def _takes(self, process: subprocess.Popen[bytes], order: Mapping[str, object]) -> bool:
        """Send the order to the process; return True once it has taken it."""
        assert process.stdin is not None, "stdin is a pipe"
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return False
        return self._answer(process, ANSWER_SECONDS) == TAKEN

    def _answer(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        """Return the next answer of the process; empty if none comes within `seconds`."""
        assert process.stdout is not None, "stdout is a pipe"
        if not select.select([process.stdout], [], [], seconds)[0]:
            return b""
        return os.read(process.stdout.fileno(), len(READY))


def wait(root: str, run: Callable[[Sequence[str]], int], modules: Iterable[str] = NEEDED) -> int:
    """Import modules, report that they are ready, wait for an order and run it; return the exit code."""
    process_secrets.begin()
    code, answers = code_digest(), os.dup(1)
    os.dup2(2, 1)  # the output of an import must not become an answer
    environment.prepare(Paths(Path(root)).token)
    for name in modules:
        import_module(name)
    if code_digest() != code:
        return 0  # the code has changed meanwhile, so the imported modules may not match
    gc.collect()
    gc.freeze()  # later collections can skip the imported modules
    os.write(answers, READY)
    line = sys.stdin.readline()
    if not line or (order := json.loads(line))["code"] != code:
        return 0
    os.write(answers, TAKEN)
    os.close(answers)
    return _become_driver(order, run)


def _become_driver(order: Mapping[str, Any], run: Callable[[Sequence[str]], int]) -> int:
    """Run the arguments of an order with its log and variables, as a cold driver would."""
    log = Path(order["log"])
    log.parent.mkdir(parents=True, exist_ok=True)
    for descriptor, file, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT),
    ):
        opened = os.open(file, flags, 0o666)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)
    os.environ.update(order["variables"])
    sys.argv = ["sweep", *order["arguments"]]
    try:
        return run(order["arguments"])
    except Exception:  # noqa: BLE001 - printed here, because `os._exit` prints nothing
        traceback.print_exc()
        return 1
