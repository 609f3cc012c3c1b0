"""The one process that delivers to MLflow for all drivers of a service.

A process that imports MLflow takes 190 MiB. Each driver delivers its own sweep, under its own lease; what
they share is the process that writes to MLflow (`tracking.deliver`). The service listens at a Unix socket and
starts the process when a driver connects and none runs, or in advance while processes are kept warm. Drivers
find the socket in their environment. If no process listens there, they start one of their own, so that no
driver depends on its service.
"""

from __future__ import annotations

import hashlib
import logging
import os
import select
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from orchestrator.machines.head import runtime_folder
from orchestrator.machines.idle_timeout import WARM_SECONDS, memory_is_short, warm_seconds
from orchestrator.process_secrets import redacted
from orchestrator.storage.paths import Paths
from orchestrator.system import SERVICE_NICENESS, lower_priority
from orchestrator.tracking import child

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
"""Time between two looks at a waiting connection or at another service that listens."""

RETRY_SECONDS = 10.0
"""Time from the start of a process to that of the next one, which may end as soon."""

SHORTEST_IDLE_SECONDS = 10.0
"""Shortest time for which the process waits for another connection."""

_started: list[subprocess.Popen[bytes]] = []
"""Processes that this one has started; the last one may serve drivers that outlive their service."""


@contextmanager
def shared_delivery(paths: Paths) -> Iterator[None]:
    """Offer the process to all processes that are started in a `with` block, and to this one."""
    path = socket_of(paths)
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(path, over), name="mlflow-process", daemon=True)
    before = os.environ.get(child.SHARED)
    os.environ[child.SHARED] = str(path)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()
        os.environ.pop(child.SHARED)
        if before is not None:
            os.environ[child.SHARED] = before


def socket_of(paths: Paths) -> Path:
    """Return the path of the socket of a ledger's service; a root would often be too long for a socket."""
    name = hashlib.sha256(paths.ledger_url.encode()).hexdigest()[:16]
    return runtime_folder() / f"mlflow-{name}.sock"


def _watch(path: Path, over: threading.Event) -> None:
    """Listen at the socket, unless another service of the ledger does, and start processes."""
    lock = FileLock(path.with_suffix(".lock"), mode=0o600)
    with ExitStack() as stack:
        while not over.is_set():
            with suppress(Timeout):
                stack.enter_context(lock.acquire(timeout=0.0))
                break
            over.wait(LOOK_SECONDS)
        if over.is_set():
            return
        try:
            path.unlink(missing_ok=True)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen(128)
            stack.callback(path.unlink, missing_ok=True)
            _start_when_needed(listener, over)
        except OSError as error:  # drivers start processes of their own
            _log.warning("Drivers cannot share a process for MLflow: %s", redacted(str(error)))


def _start_when_needed(listener: socket.socket, over: threading.Event) -> None:
    warm, started_at = warm_seconds(WARM_SECONDS), time.monotonic()
    process = _start(listener, warm) if warm and not memory_is_short() else None
    while not over.is_set():
        waiting, _, _ = select.select([listener], [], [], LOOK_SECONDS)
        has_ended = process is not None and process.poll() is not None  # asked also to leave no zombie
        if not waiting:
            continue
        if has_ended:
            over.wait(max(0.0, started_at + RETRY_SECONDS - time.monotonic()))
            process = None
        if process is None:
            process, started_at = _start(listener, warm), time.monotonic()
        over.wait(LOOK_SECONDS)


def _start(listener: socket.socket, warm: float) -> subprocess.Popen[bytes]:
    idle = max(warm, SHORTEST_IDLE_SECONDS)
    arguments = ("--listen", str(listener.fileno()), "--service", str(os.getpid()), "--idle", str(idle))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process, secrets = child.start(*arguments, pass_fds=(listener.fileno(),), **quiet)
    lower_priority(process.pid, SERVICE_NICENESS)
    assert process.stdin is not None, "it is a pipe"
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(secrets)
    _started[:] = [*(each for each in _started if each.poll() is None), process]
    return process
