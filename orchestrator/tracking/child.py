"""Channel from the shipper to the delivery process: one of its own, or one that a service's drivers share.

Every call has a timeout. A process that neither answers nor makes progress is killed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from orchestrator import process_secrets, system
from orchestrator.provenance import code_digest
from orchestrator.tracking import address

_COMMAND = (sys.executable, "-m", "orchestrator.tracking.deliver")


class DeliveryError(Exception):
    """The child does not answer, or has ended. The message includes its last line of stderr."""


class _Channel:
    """Lines of JSON to a process that delivers, and its answers.

    Args:
        to: Descriptor to write to, which becomes non-blocking.
        from_: Descriptor to read from.
    """

    def __init__(self, to: int, from_: int) -> None:
        self._to, self._from = to, from_
        os.set_blocking(to, False)
        self._received = b""
        self._unsent = b""

    def ask(
        self, document: Mapping[str, Any] | None, seconds: float, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        """Send a line, if there is one, and return the next answer.

        Raises:
            DeliveryError: The process ends or reports an error, `seconds` pass without a sign that it makes
                progress, or `cancelled` returns True.
        """
        if document is not None:
            self._unsent += _line(document)
        deadline = time.monotonic() + seconds
        while True:
            while b"\n" not in self._received:
                if cancelled():
                    raise DeliveryError("cancelled by the driver")
                if time.monotonic() > deadline:
                    self._silent()
                    raise DeliveryError(f"no answer within {seconds:g} s")
                self._exchange()
            line, _, self._received = self._received.partition(b"\n")
            answer = dict(json.loads(line))
            if "error" in answer:
                raise DeliveryError(f"the delivering process reports: {answer['error']}")
            if ALIVE not in answer:
                return answer
            self._progressed(answer)
            deadline = time.monotonic() + seconds

    def _exchange(self) -> None:
        """Read and write once, after waiting up to 0.2 s."""
        writing = [self._to] if self._unsent else []
        readable, writable, _ = select.select([self._from], writing, [], 0.2)
        try:
            if writable:
                self._unsent = self._unsent[os.write(self._to, self._unsent[:65536]) :]
            received = os.read(self._from, 65536) if readable else None
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            received = b""
        if received == b"":
            raise DeliveryError(f"the delivering process ended: {self._last_error()}")
        self._received += received or b""

    def _progressed(self, sign: Mapping[str, Any]) -> None:
        """Take a sign of progress."""

    def _silent(self) -> None:
        """Act on a process that has been silent for too long; the caller ends this channel."""

    def _last_error(self) -> str:
        return "without an error message"


class Child(_Channel):
    """A running `deliver` process, in a session of its own so that Ctrl-C does not reach it."""

    def __init__(self, destination: Mapping[str, Any]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the child lives
        self._process, secrets = start(stdout=subprocess.PIPE, stderr=self._errors)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        super().__init__(self._process.stdin.fileno(), self._process.stdout.fileno())
        system.lower_priority(self._process.pid, system.SERVICE_NICENESS)
        self._unsent = secrets + _line(destination)

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

    def _last_error(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else super()._last_error()


class SharedProcess(_Channel):
    """A connection to the `deliver` process that drivers of a service share.

    It stops before its next write to MLflow once the connection is closed. If it does not answer for too long
    it is killed, as a process of one's own would be; the service starts another one for the other drivers.
    It must run the code of this process.

    Raises:
        OSError: No service listens at the path.
    """

    def __init__(self, path: str, destination: Mapping[str, Any]) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        super().__init__(self._socket.fileno(), self._socket.fileno())
        self._unsent = _line(destination)
        self._pid: int | None = None

    def kill(self) -> None:
        """Close the connection for both sides, from any thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self, seconds: float) -> None:
        """Wait up to `seconds` for the process to finish what it writes, then close the connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + seconds
        with suppress(DeliveryError, OSError):
            while time.monotonic() < deadline:
                self._exchange()
        self._socket.close()

    def _progressed(self, sign: Mapping[str, Any]) -> None:
        self._pid = sign[ALIVE]
        if "code" in sign and sign["code"] != code_digest():
            _mute.add(self._path)
            raise DeliveryError("the process that drivers share runs other code than this driver")

    def _silent(self) -> None:
        _mute.add(self._path)  # a batch that takes too long must not end the process of others again
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)


SHARED = "SWEEP_DELIVERY"
"""Environment variable: path of the socket at which the service's process for MLflow is reached."""

ALIVE = "alive"
"""Key of a line that is no answer: a sign of progress, with the PID of the process."""

_mute: set[str] = set()
"""Paths at which the last connection was silent for too long, or met a process with other code."""


def delivery_to(destination: Mapping[str, Any]) -> Child | SharedProcess:
    """Return a channel to a process that delivers to a destination.

    Under a service it is the one that all its drivers share, otherwise a new one.
    """
    path = os.environ.get(SHARED)
    if path and path not in _mute:
        with suppress(OSError):  # such as that of a service that has ended
            return SharedProcess(path, destination)
    _mute.clear()
    return Child(destination)


def start(*arguments: str, **streams: Any) -> tuple[subprocess.Popen[bytes], bytes]:
    """Start a delivering process; return it and the first line for its standard input, with the secrets."""
    environment, secrets = process_secrets.parted(address.environment())
    process = subprocess.Popen(
        [*_COMMAND, *arguments],
        stdin=subprocess.PIPE,
        env=environment,
        start_new_session=True,
        **streams,
    )
    return process, secrets


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"
