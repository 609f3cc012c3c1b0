"""Delivery process: reads batches of events from stdin, writes them to MLflow, acknowledges on stdout.

Each line is a JSON document. The first one holds the secret variables, the second one the destination. Each
further line is a batch, which is acknowledged once all of it is written. Delivery has a process of its own
because MLflow's clients block for minutes when their server does, and because importing MLflow takes longer
than the first report of most trials.

    in   {"NAME": "value", ...}
    in   {"uri": ..., "artifacts": ..., "experiment": ..., "sweep_id": ..., "runs": {...}, "until": ...}
    out  {"sweep_id": ..., "created": {run: run id, ...}, "batch": 6, "lost": 0,
          "notes": ["The run of ... has been restored", ...]}
    in   {"batch": 7, "events": [{"kind": ..., "run": ..., "payload": ..., "at_ms": ...}, ...], "until": ...}
    out  {"batch": 7, "created": {run: run id, ...}}
    in   {"batch": 7, "recorded": true}
    out  {"batch": 7, "refused": [{"run": ..., "kind": ..., "reason": ...}, ...]}

`{"alive": PID}` may come before any answer, at most every five seconds: something was written meanwhile.

With `--listen FD` the process serves the drivers of a service: each connection of a listening socket is a
channel of its own, without the line of variables; its first line names the code of the process as `code`,
because the driver may run other code. An error ends its connection alone. The process ends once it has had no
connection for `--idle` seconds, or has none and its service has ended.

`batch` and `lost` of the first answer are the newest batch that MLflow has, and the number of runs that it
has lost. Every answer names its sweep or its batch, so that it cannot be taken for another one. Runs that the
ledger does not know are created first. They are deleted again if the ledger refuses to record them because
another driver has taken the lease. `until` is the end of the lease, by a clock that continues while the
machine is suspended; nothing is written after it. Any error ends the process, after the line
`{"error": "..."}`; the shipper then starts another one and sends the batch again. The end of stdin also ends
the process.

The process also records the load of its machine, which is that of the driver: processor, memory, disk,
network and GPUs become `system/...` metrics of the sweep's run, with one point every 30 seconds.
`MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING=false` turns this off, as everywhere in MLflow.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar

from filelock import FileLock
from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from orchestrator import process_secrets
from orchestrator.ledger.sweeps.records import Event
from orchestrator.machines.head import runtime_folder
from orchestrator.machines.idle_timeout import memory_is_short
from orchestrator.process_secrets import redacted
from orchestrator.provenance import code_digest
from orchestrator.system import System
from orchestrator.tracking.child import ALIVE
from orchestrator.tracking.mlflow_sink import Destination, MlflowSink

_SAMPLE_SECONDS = 10.0
_SAMPLES_A_POINT = 3

_ALIVE_SECONDS = 5.0
"""Time between two signs of progress."""

_LOOK_SECONDS = 1.0
"""Time between two looks at whether the process is still needed."""


def main() -> None:
    """Serve one sweep until stdin ends, or several that connect."""
    process_secrets.begin()
    parser = argparse.ArgumentParser(prog="python -m orchestrator.tracking.deliver")
    parser.add_argument("--listen", type=int, metavar="FD", help="Descriptor of a listening socket.")
    parser.add_argument("--service", type=int, metavar="PID", help="Service that listens too.")
    parser.add_argument("--idle", type=float, default=0.0, help="Seconds without a connection.")
    given = parser.parse_args()
    # Otherwise collections take a third of the time: rows of MLflow become many objects, and few are garbage.
    gc.freeze()
    gc.set_threshold(50_000, 20)
    if given.listen is None:
        deliver(sys.stdin, _own_stdout())
    else:
        listen(socket.socket(fileno=given.listen), given.service, given.idle)


def listen(listener: socket.socket, service: int, idle_seconds: float) -> None:
    """Serve each connection in a thread, until none is open and none is expected.

    Args:
        listener: Listening socket, which the service keeps.
        service: PID of the service, which is the parent of this process.
        idle_seconds: Time to wait for another connection, unless the service has ended or memory is short.
    """
    used_at, serving, code = time.monotonic(), list[threading.Thread](), code_digest()
    listener.settimeout(_LOOK_SECONDS)
    while True:
        with suppress(TimeoutError):
            connection, _ = listener.accept()
            connection.settimeout(None)
            serving.append(threading.Thread(target=_serve_connection, args=(connection, code), daemon=True))
            serving[-1].start()
        serving = [thread for thread in serving if thread.is_alive()]
        if serving:
            used_at = time.monotonic()
        elif time.monotonic() - used_at >= idle_seconds or os.getppid() != service or memory_is_short():
            return


def _serve_connection(connection: socket.socket, code: str) -> None:
    with (
        suppress(OSError),  # the driver has gone
        connection,
        connection.makefile("r") as source,
        connection.makefile("w") as answers,
    ):
        _answer(answers, {ALIVE: os.getpid(), "code": code})
        deliver(source, answers, partial(_check_peer, connection))


def _check_peer(connection: socket.socket) -> None:
    """Check that the driver has not closed its connection; raise ConnectionAbortedError otherwise."""
    with suppress(BlockingIOError):
        if not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            raise ConnectionAbortedError("the driver has ended its connection")


def deliver(source: IO[str], answers: IO[str], check_peer: Callable[[], None] = lambda: None) -> None:
    """Serve one sweep until its input ends, or an error, which it reports to the driver.

    Args:
        source: Lines of the driver, from the destination on.
        answers: Lines for the driver.
        check_peer: Function that raises an error if the driver has gone.
    """
    try:
        _deliver(source, answers, check_peer)
    except Exception as error:  # noqa: BLE001 - the driver reports it, and tries again
        _answer(answers, {"error": redacted(f"{type(error).__name__}: {error}".partition("\n")[0])})


def _deliver(source: IO[str], answers: IO[str], check_peer: Callable[[], None]) -> None:
    def read() -> dict[str, Any] | None:
        line = source.readline()
        return dict(json.loads(line)) if line else None

    if (first := read()) is None:
        return
    until = Deadline(first.pop("until"), System())
    destination = Destination(**first)
    progress = ProgressSigns(lambda: _answer(answers, {ALIVE: os.getpid()}))

    def may_write() -> None:
        check_peer()
        until.check()
        progress.made()

    # A child that outlived an earlier driver finishes its batch first.
    with FileLock(_lock_of(destination), mode=0o600):
        check_peer()  # the runs that it names may be those of long ago
        with progress.turn():
            sink = MlflowSink(destination, may_write)
        with MachineWatch(destination.uri) as machine:
            for _ in serve(sink, until, read, lambda document: _answer(answers, document), progress.turn):
                machine.begin(sink.sweep_run)


_turns = threading.BoundedSemaphore(4)
"""Connections that write at the same time: each takes two from MLflow's pool, which has 15."""


class ProgressSigns:
    """Tells a driver that its sweep, or the one that it waits for, is being written.

    Args:
        tell: Function that tells it.

    Attributes:
        written: Number of writes of the whole process, about; only differences count.
    """

    written: ClassVar[int] = 0

    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell, self._told_at = tell, time.monotonic()

    def made(self) -> None:
        """Note one write."""
        ProgressSigns.written += 1
        if time.monotonic() - self._told_at >= _ALIVE_SECONDS:
            self._tell()
            self._told_at = time.monotonic()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until few enough others write, within a `with` block; a process that is stuck is silent."""
        before = self.written
        while not _turns.acquire(timeout=_ALIVE_SECONDS):
            if self.written != before:
                before = self.written
                self._tell()
        try:
            yield
        finally:
            _turns.release()


@dataclass
class Deadline:
    """The end of the driver's lease.

    Attributes:
        at: End of the lease in seconds, by the clock that continues while the machine is suspended.
        system: System of the delivering process.
    """

    at: float
    system: System

    def check(self) -> None:
        """Check that the lease has not ended; raise TimeoutError otherwise."""
        if self.system.since_boot() > self.at:
            raise TimeoutError("the lease of the driver may have ended")


def serve(
    sink: MlflowSink,
    until: Deadline,
    read: Callable[[], dict[str, Any] | None],
    answer: Callable[[dict[str, Any]], object],
    turn: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[int]:
    """Deliver batches until the input ends; yield the number of each written batch.

    Args:
        sink: Sink of the sweep.
        until: End of the lease, which each batch extends.
        read: Function that returns the next document of the driver, or None at the end.
        answer: Function that sends a document to the driver.
        turn: Function that returns a context in which MLflow is written to.
    """
    found = {"batch": sink.batch, "lost": sink.lost, "notes": sink.notes}
    answer({"sweep_id": sink.sweep_id, "created": sink.recreated, **found})
    while (batch := read()) is not None:
        until.at = batch["until"]
        events = [Event(**event) for event in batch["events"]]
        with turn():
            created = sink.create(events)
        answer({"batch": batch["batch"], "created": created})
        if (verdict := read()) is None:
            return  # the ledger may have recorded the runs
        if verdict["batch"] != batch["batch"]:
            raise ValueError(f"a verdict on batch {verdict['batch']} came for batch {batch['batch']}")
        if not verdict["recorded"]:
            sink.delete(created)
            return
        with turn():
            refused = sink.apply(events)
            sink.finish(batch["batch"])
        answer({"batch": batch["batch"], "refused": [asdict(row) for row in refused]})
        yield batch["batch"]


class MachineWatch:
    """Records the load of this machine with MLflow's own monitor."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._monitor: SystemMetricsMonitor | None = None
        # MLflow's default is not to record.
        self._wanted = MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get() or (
            not MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.is_set()
        )

    def begin(self, run_id: str | None) -> None:
        """Start recording to a run after its last point. Idempotent; does nothing without a run."""
        if run_id is None or self._monitor is not None or not self._wanted:
            return
        self._monitor = SystemMetricsMonitor(
            run_id, _SAMPLE_SECONDS, _SAMPLES_A_POINT, resume_logging=True, tracking_uri=self._uri
        )
        self._monitor.start()

    def __enter__(self) -> MachineWatch:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Stop, after writing the remaining samples; after an error without waiting for MLflow."""
        if self._monitor is None:
            return
        if error is None:
            self._monitor.finish()
        else:
            threading.Thread(target=self._monitor.finish, daemon=True).start()


def _own_stdout() -> IO[str]:
    """Reserve stdout for answers, and redirect all other output to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _answer(answers: IO[str], document: dict[str, Any]) -> None:
    print(json.dumps(document), file=answers, flush=True)


def _lock_of(destination: Destination) -> Path:
    """Return the lock file that allows one delivery process for each sweep on this machine."""
    name = hashlib.sha256(f"{destination.uri} {destination.sweep_id}".encode()).hexdigest()[:16]
    return runtime_folder() / f"deliver-{name}.lock"


if __name__ == "__main__":
    main()
    # Skip the cleanup of MLflow's modules, which takes a second: the driver waits for this exit.
    os._exit(0)
