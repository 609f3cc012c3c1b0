"""Entry point: `python -m orchestrator.sweep FILE`, or `ray submit CLUSTER orchestrator/sweep.py -- FILE`.

`ray submit` copies this one file to the home folder of the cluster's head and runs the copy over SSH. A copy
changes to the folder of the project, which contains the files that its arguments name. It starts the driver
as a detached process and follows it, because the connection may be lost. A job of `ray job submit` changes
to that folder too, because it starts in the folder in which its node was started; Ray keeps the job running.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

# Imports create no garbage: to look for it takes a tenth of the time of `list`.
gc.set_threshold(50_000, 20)

from orchestrator import process_secrets, search_installed_modules_alone  # noqa: E402 - see above
from orchestrator.cli.app import code_of_interruption, outlives_its_output, run_command  # noqa: E402 - see above
from orchestrator.driver import detached  # noqa: E402 - see above
from orchestrator.driver.shutdown import exit_at_once, run_and_exit  # noqa: E402 - see above
from orchestrator.output import protect  # noqa: E402 - see above

RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Environment variable that Ray sets for the command of a job."""


def main() -> None:
    """Run the command line of this process and exit with its code."""
    process_secrets.begin()
    search_installed_modules_alone()
    package = Path(detached.__file__).parents[1]
    copied = not Path(__file__).samefile(package / "sweep.py")
    if copied or RAY_JOB in os.environ:
        os.chdir(package.parent)
    if copied:
        os.environ.setdefault(detached.DETACH, "1")
    protect(goes_on=outlives_its_output(sys.argv[1:]))
    if outlives_its_output(sys.argv[1:]):
        run_and_exit(run_command, sys.argv[1:], code_of_interruption(sys.argv[1:]))
    exit_at_once(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
