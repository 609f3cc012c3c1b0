"""A service in a process of its own, whose drivers need no Ray and whose waits are short.

With `die` as its second argument it kills itself when it is to start a driver; with `hasty` it soon gives up
a driver that does not begin; with `stop-drivers` its drivers end with it; with `one` it runs one at a time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from orchestrator.errors import Refusal, exit_of
from orchestrator.ledger.queue.submissions import Submission
from orchestrator.service import deliveries, service, supervision
from orchestrator.service.start_order import DRIVERS_AT_ONCE
from orchestrator.storage.paths import Paths
from tests.orchestrator.service import driver

supervision.BACKOFF_SECONDS = 0.05
HASTY_SECONDS = 15.0
service.POLL_SECONDS = 0.05
deliveries.LOOK_SECONDS = 0.2


def main(root: Path, mode: str, database: str | None) -> int:
    paths = Paths(root, database, tracking=os.environ.get("MLFLOW_TRACKING_URI"))
    if mode == "hasty":
        supervision.BEGIN_SECONDS = HASTY_SECONDS

    def start(submission: Submission) -> subprocess.Popen[bytes]:
        if mode == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return driver.start(paths, submission)

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    try:
        return service.serve(
            paths,
            say,
            drivers_at_once=1 if mode == "one" else DRIVERS_AT_ONCE,
            stop_drivers=mode == "stop-drivers",
            start=start,
        )
    except Refusal as refusal:
        say(str(refusal))
        return exit_of(refusal)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None))
