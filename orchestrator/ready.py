"""Entry point: `python -m orchestrator.ready ROOT`, a driver that waits for its sweep.

The service starts it; `orchestrator.driver.ready` says why.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from orchestrator.cli.app import run_command
from orchestrator.driver.waiting import wait


def main() -> None:
    """Wait, drive the sweep that comes, and exit with its code."""
    code = wait(Path(sys.argv[1]), run_command)
    sys.stdout.flush()
    sys.stderr.flush()
    # The sweep is over and its files are closed; collecting all that was imported would take a second.
    os._exit(code)


if __name__ == "__main__":
    main()
