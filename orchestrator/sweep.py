"""Entry point: `python -m orchestrator.sweep FILE`, or `ray submit CLUSTER orchestrator/sweep.py -- FILE`.

`ray submit` copies this one file to the home folder of the cluster's head, and runs the copy over SSH. So a
copy goes to the project, where the files are that its arguments name, and starts the driver as a process of
its own, which it follows: the connection may be lost.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from orchestrator.cli.app import run_command
from orchestrator.driver import detached


def main() -> None:
    """Run the command line of this process and leave with its exit code."""
    package = Path(detached.__file__).parents[1]
    if not Path(__file__).samefile(package / "sweep.py"):
        os.chdir(package.parent)
        os.environ.setdefault(detached.DETACH, "1")
    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
