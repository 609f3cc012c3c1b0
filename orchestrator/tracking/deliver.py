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

`batch` and `lost` of the first answer are the newest batch that MLflow has, and the number of runs that it
has lost. Every answer names its sweep or its batch, so that it cannot be taken for another one. Runs that the
ledger does not know are created first. They are deleted again if the ledger refuses to record them because
another driver has taken the lease. `until` is the end of the lease, by a clock that continues while the
machine is suspended; nothing is written after it. Any error ends the process; the shipper then starts another
one and sends the batch again. The end of stdin also ends the process.

The process also records the load of its machine, which is that of the driver: processor, memory, disk,
network and GPUs become `system/...` metrics of the sweep's run, with one point every 30 seconds.
`MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING=false` turns this off, as everywhere in MLflow.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from filelock import FileLock
from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from orchestrator import process_secrets
from orchestrator.ledger.sweeps.records import Event
from orchestrator.machines.head import runtime_folder
from orchestrator.system import System
from orchestrator.tracking.mlflow_sink import Destination, MlflowSink

_SAMPLE_SECONDS = 10.0
_SAMPLES_A_POINT = 3


def main() -> None:
    """Serve one sweep until stdin ends."""
    process_secrets.begin()
    answers = _own_stdout()
    if (first := _read()) is None:
        return  # started in advance, and not used
    until = Deadline(first.pop("until"), System())
    destination = Destination(**first)
    # A child that outlived an earlier driver finishes its batch first.
    with FileLock(_lock_of(destination), mode=0o600):
        sink, machine = MlflowSink(destination, until.check), MachineWatch(destination.uri)
        for _ in serve(sink, until, _read, lambda document: _answer(answers, document)):
            machine.begin(sink.sweep_run)
        machine.end()


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
) -> Iterator[int]:
    """Deliver batches until the input ends; yield the number of each written batch.

    Args:
        sink: Sink of the sweep.
        until: End of the lease, which each batch extends.
        read: Function that returns the next document of the driver, or None at the end.
        answer: Function that sends a document to the driver.
    """
    found = {"batch": sink.batch, "lost": sink.lost, "notes": sink.notes}
    answer({"sweep_id": sink.sweep_id, "created": sink.recreated, **found})
    while (batch := read()) is not None:
        until.at = batch["until"]
        events = [Event(**event) for event in batch["events"]]
        created = sink.create(events)
        answer({"batch": batch["batch"], "created": created})
        if (verdict := read()) is None:
            return  # the ledger may have recorded the runs
        if verdict["batch"] != batch["batch"]:
            raise ValueError(f"a verdict on batch {verdict['batch']} came for batch {batch['batch']}")
        if not verdict["recorded"]:
            sink.delete(created)
            return
        refused = sink.apply(events)
        sink.finish(batch["batch"])
        answer({"batch": batch["batch"], "refused": [asdict(row) for row in refused]})
        yield batch["batch"]


def _read() -> dict[str, Any] | None:
    line = sys.stdin.readline()
    return dict(json.loads(line)) if line else None


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

    def end(self) -> None:
        """Write the remaining samples, and stop."""
        if self._monitor is not None:
            self._monitor.finish()


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
