"""The priority of drivers, and of the sessions that they start."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import BadInput

NICENESS = "SWEEP_DRIVER_NICENESS"
"""Environment variable: niceness of a driver and its process for MLflow. The service sets it."""

OF_SERVICE = 15
"""Niceness of a driver of the service, as of Ray's workers: it mostly waits, and people do not like to."""


def niceness(default: int = 0) -> int:
    """Return the niceness of a driver.

    Args:
        default: if the environment does not say.

    Raises:
        BadInput: `SWEEP_DRIVER_NICENESS` is no whole number from 0 to 19.
    """
    text = os.environ.get(NICENESS) or str(default)
    if text.isdecimal() and int(text) <= 19:
        return int(text)
    raise BadInput(NICENESS, "must be a whole number from 0 to 19", repr(text), "0 changes nothing.")


def lower(pid: int) -> None:
    """Give a process the niceness of this driver, and its session too, which must be its own.

    The niceness is that of the process's first thread and of what this starts from now on.
    """
    if not (wanted := niceness()):
        return
    with suppress(OSError):  # it has ended
        os.setpriority(os.PRIO_PROCESS, pid, max(wanted, os.getpriority(os.PRIO_PROCESS, pid)))
        lower_session(pid)


def lower_session(pid: int) -> None:
    """Give the session of a process, which must be its own, the niceness of the process.

    Linux may share processors between sessions first (autogroups), and then a session that has just begun has
    normal priority whatever that of its processes is: what `nice` starts would compete as if it were not.
    """
    with suppress(OSError):  # it has ended; or no autogroups, or too soon after another change
        if wanted := os.getpriority(os.PRIO_PROCESS, pid):
            Path(f"/proc/{pid}/autogroup").write_text(str(wanted))
