"""Entry point: `python -m orchestrator.ready ROOT`, a driver that waits for its sweep.

The service starts it; `orchestrator.driver.ready` says why.
"""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.cli.app import run_command
from orchestrator.cli.leaving import leave
from orchestrator.driver.waiting import wait


def main() -> None:
    """Wait, drive the sweep that comes, and exit with its code."""
    leave(wait(Path(sys.argv[1]), run_command))


if __name__ == "__main__":
    main()
