"""Entry point: `python -m orchestrator.sweep FILE`, or `ray submit CLUSTER orchestrator/sweep.py -- FILE`."""

from __future__ import annotations

import sys

from orchestrator.cli.app import run_command


def main() -> None:
    """Run the command line of this process and leave with its exit code."""
    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
