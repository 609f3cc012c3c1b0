"""The process that writes to MLflow: batches of events in by stdin, acknowledgements out by stdout.

One JSON document a line. The first line in is the destination; every other one a batch, answered when all of
it is written. A process of its own, because MLflow's clients block for minutes when a server does, and
because importing MLflow takes longer than most trials' first report.

    in   {"uri": ..., "artifacts": ..., "experiment": ..., "sweep_id": ..., "sweep_created": ...}
    out  {"ready": true}
    in   {"batch": 7, "events": [{"kind": ..., "run": ..., "payload": ..., "at_ms": ...}, ...]}
    out  {"batch": 7, "refused": [{"run": ..., "kind": ..., "reason": ...}, ...]}

Any error ends the process; the shipper starts another and sends the batch again. The end of stdin ends
it too.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from orchestrator.ledger.records import Event
from orchestrator.tracking.locks import locked
from orchestrator.tracking.machine import MachineWatch
from orchestrator.tracking.mlflow_sink import Destination, MlflowSink


def main() -> None:
    """Serve one sweep until stdin ends."""
    answers = _own_stdout()
    destination = Destination(**json.loads(sys.stdin.readline()))
    with locked(_lock_of(destination), 0o600):  # an orphan of an earlier driver ends its batch first
        sink, machine = MlflowSink(destination), MachineWatch(destination.uri)
        _answer(answers, {"ready": True})
        for line in sys.stdin:
            batch = json.loads(line)
            refused = sink.apply([Event(**event) for event in batch["events"]])
            _answer(answers, {"batch": batch["batch"], "refused": [asdict(row) for row in refused]})
            machine.begin(sink.sweep_run)
        machine.end()


def _own_stdout() -> IO[str]:
    """Keep the pipe of the answers for ourselves; whatever else prints, MLflow included, goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _answer(answers: IO[str], document: dict[str, Any]) -> None:
    print(json.dumps(document), file=answers, flush=True)


def _lock_of(destination: Destination) -> Path:
    """Return the file that the one writer of a sweep's runs on this machine holds."""
    name = hashlib.sha256(f"{destination.uri} {destination.sweep_id}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"sweep-deliver-{os.getuid()}-{name}.lock"


if __name__ == "__main__":
    main()
