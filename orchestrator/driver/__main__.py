"""Entry point of the process that drives a submitted sweep: `python -m orchestrator.driver`.

    python -m orchestrator.driver SWEEP --start N --root ROOT    drive a sweep
    python -m orchestrator.driver --prewarm --root ROOT          import everything, then wait for a sweep

Only the service starts it, and no module imports it. Users run `python -m orchestrator.sweep`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from orchestrator import json_log, process_secrets, search_installed_modules_alone
from orchestrator.accounts import files_closed
from orchestrator.driver import prewarmed, shutdown, submitted_sweep
from orchestrator.errors import Refusal
from orchestrator.output import print_refusal, protect


def main() -> None:
    """Drive the sweep of the command line, or the one that the service names later; exit with its code."""
    process_secrets.begin()
    search_installed_modules_alone()
    arguments = sys.argv[1:]
    if "--prewarm" in arguments:
        shutdown.exit_at_once(prewarmed.wait(_parser().parse_args(arguments).root, drive))
    shutdown.run_and_exit(drive, arguments)


def drive(arguments: Sequence[str]) -> int:
    """Drive the sweep of a command line and return the exit code; an error is printed in one line."""
    protect(goes_on=True)
    if json_log.is_json():
        json_log.begin()
    given = _parser().parse_args(arguments)
    try:
        with files_closed():
            code = submitted_sweep.drive(given.sweep, given.start, given.root)
        sys.stdout.flush()
    except (Refusal, OSError) as error:
        return print_refusal(error)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m orchestrator.driver")
    parser.add_argument("sweep", nargs="?", help="Id of a submitted sweep.")
    parser.add_argument("--start", type=int, help="Number of this start of the submission.")
    parser.add_argument("--root", help="Folder of everything that sweeps write.")
    parser.add_argument("--prewarm", action="store_true", help="Import everything, then wait for a sweep.")
    return parser


if __name__ == "__main__":
    main()
