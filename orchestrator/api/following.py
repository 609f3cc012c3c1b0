"""Drivers in processes of their own: start one for a sweep, and follow what it prints."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.api.sweep import Sweep
from orchestrator.driver import detached, preflight
from orchestrator.driver.detached import DETACH

__all__ = ["DETACH", "DetachedDriver", "start"]

Show = Callable[[str], None]
"""Receives text as the driver prints it."""


@dataclass(frozen=True)
class DetachedDriver:
    """A driver in a process of its own, which outlives the process that started it.

    Attributes:
        process: the process.
        log: file that receives what it prints.
        start: position in `log`, in bytes, where its output begins.
    """

    process: subprocess.Popen[bytes]
    log: Path
    start: int

    def follow(self, show: Show) -> int:
        """Pass on what the driver prints until it ends.

        Returns:
            Its exit code; negative if a signal ended it, as `subprocess` counts.
        """
        detached.follow(self.log, self.start, lambda: self.process.poll() is not None, show)
        return self.process.returncode


def start(sweep: Sweep, arguments: Sequence[str]) -> DetachedDriver:
    """Start a driver of a sweep in a process of its own, once everything that can be checked has been.

    Args:
        sweep: the sweep.
        arguments: arguments of Python for a process that runs it, such as `-m MODULE WORD ...`.

    Raises:
        BadInput: as `Sweep.run`.
        BadData: as `Sweep.run`.
        NoCluster: as `Sweep.run`.
    """
    sweep.admit()
    preflight.check_paths(sweep.workspace.paths)
    log = sweep.workspace.paths.driver_log(sweep.id)
    position = detached.end_of(log)
    return DetachedDriver(detached.begin(arguments, log), log, position)
