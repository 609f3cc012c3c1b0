"""A driver without Ray, which holds the real lease of its sweep.

The option `behaviour` of its submission says what it does: `hold` drives until a file `finish` exists under
the root, and saves for a second after SIGTERM; `crash` ends with an error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from orchestrator.ledger.holder import Holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import asked_to_stop
from orchestrator.ledger.queue.submissions import Submission
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.storage.paths import Paths
from tests.orchestrator.ledger.examples import sweep_record

ROOT = Path(__file__).parents[3]


def started(root: Path, sweep_id: str) -> list[int]:
    """Return the ids of the processes of all drivers of a sweep that have begun, in order."""
    file = root / f"started-{sweep_id}"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def start(paths: Paths, submission: Submission) -> subprocess.Popen[bytes]:
    """Start a driver as the service does."""
    log = paths.driver_log(submission.sweep_id)
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [paths.ledger_url, str(paths.root), submission.sweep_id, str(submission.starts)]
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.orchestrator.service.driver", *words],
            cwd=ROOT,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def main(url: str, root: Path, sweep_id: str, number: int) -> None:
    with closing(Ledger.open(url, reconnect_seconds=90.0)) as ledger:
        submissions.begin(ledger, sweep_id, number, Holder.here())
        with (root / f"started-{sweep_id}").open("a") as file:
            file.write(f"{os.getpid()}\n")
        entry = submissions.submission(ledger, sweep_id)
        assert entry is not None
        if entry.options["behaviour"] == "crash":
            raise ValueError("poison")
        with Lease(ledger, sweep_id) as lease:
            code = drive(ledger, lease, root, sweep_id)
        submissions.end(ledger, sweep_id, number, code, None)


def drive(ledger: Ledger, lease: Lease, root: Path, sweep_id: str) -> int:
    lease.writer.create_sweep(replace(sweep_record(), id=sweep_id))
    terminated: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: terminated.append(number))
    while not (root / "finish").exists():
        if terminated:
            time.sleep(1.0)
            lease.writer.set_sweep_state("INTERRUPTED", "SIGTERM")
            return 4
        if asked_to_stop(ledger, sweep_id):
            lease.writer.set_sweep_state("INTERRUPTED", "stopped by `stop`")
            return 4
        time.sleep(0.05)
    lease.writer.set_sweep_state("COMPLETE")
    return 0


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
