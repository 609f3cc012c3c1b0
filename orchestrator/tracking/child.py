"""Pipe from the shipper to the delivery process.

Every call has a timeout. A child that neither reads nor answers is killed with its descendants.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator import process_secrets, system
from orchestrator.tracking import address

_COMMAND = (sys.executable, "-m", "orchestrator.tracking.deliver")


class DeliveryError(Exception):
    """The child does not answer, or has ended. The message includes its last line of stderr."""


class Child:
    """A running `deliver` process, in a session of its own so that Ctrl-C does not reach it.

    The process imports MLflow for seconds before it needs its destination, so it can be started in advance.
    """

    def __init__(self) -> None:
        environment, self._secrets = process_secrets.parted(address.environment())
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the child lives
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        self._received = b""
        self._unsent = b""

    @property
    def lives(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def direct(self, destination: Mapping[str, Any]) -> None:
        """Send the destination without waiting. Required once, before the first `ask`."""
        system.lower_priority(self._process.pid)
        self._unsent = self._secrets + _line(destination)

    def ask(
        self, document: Mapping[str, Any] | None, seconds: float, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        """Send a line, if there is one, and return the next answer.

        Raises:
            DeliveryError: The child ends, `seconds` pass, or `cancelled` returns True.
        """
        if document is not None:
            self._unsent += _line(document)
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            if cancelled():
                raise DeliveryError("cancelled by the driver")
            if time.monotonic() > deadline:
                raise DeliveryError(f"no answer within {seconds:g} s")
            self._exchange()
        answer, _, self._received = self._received.partition(b"\n")
        return dict(json.loads(answer))

    def kill(self) -> None:
        """Kill the child at once, from any thread."""
        self._process.kill()

    def end(self, seconds: float) -> None:
        """Wait up to `seconds` for the child to exit, then kill it and its children."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._errors.close()

    def _exchange(self) -> None:
        """Read from and write to the pipes once, after waiting for them up to 0.2 s."""
        writing = [self._to] if self._unsent else []
        readable, writable, _ = select.select([self._from], writing, [], 0.2)
        try:
            if writable:
                self._unsent = self._unsent[os.write(self._to, self._unsent[:65536]) :]
            received = os.read(self._from, 65536) if readable else None
        except BrokenPipeError:
            received = b""
        if received == b"":
            raise DeliveryError(f"the delivering process ended: {self._last_error()}")
        self._received += received or b""

    def _last_error(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "without an error message"


_spares: list[Child] = []


def prepare() -> None:
    """Start the process of the next `delivery_to` in advance, so that it has imported MLflow by then."""
    _spares.append(Child())


def discard() -> None:
    """End the processes that `prepare` has started and `delivery_to` has not used."""
    while _spares:
        _spares.pop().end(0.0)


def delivery_to(destination: Mapping[str, Any]) -> Child:
    """Return a process that delivers to a destination; use a prepared one if there is one."""
    child = _spares.pop() if _spares else Child()
    if not child.lives:
        child.end(0.0)
        child = Child()
    child.direct(destination)
    return child


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"
