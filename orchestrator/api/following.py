"""Drivers in processes of their own: start one for a sweep, and follow what it prints."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.api.sweep import Sweep
from orchestrator.driver import detached, preflight
from orchestrator.driver.admission import Observer
from orchestrator.driver.detached import DETACH
from orchestrator.errors import Exit
from orchestrator.ledger.lease import holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import FINISHED_SWEEP

__all__ = ["DETACH", "DetachedDriver", "exit_code", "follow", "start"]

_LOOK_SECONDS = 2.0

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


def follow(sweep: Sweep, show: Show, observer: Observer) -> Exit:
    """Follow a sweep that another process drives until that process ends; return the sweep's exit code.

    Args:
        sweep: the sweep.
        show: receives what the driver prints, if its log is on this machine.
        observer: receives the progress instead, as the ledger has it, if the driver prints to no log, or to
            one on another machine.

    Raises:
        BadInput: the sweep has never run.
    """
    log = sweep.workspace.paths.driver_log(sweep.id)
    with sweep.workspace.ledger() as ledger:
        driver = holder(ledger, sweep.id)

        def ended() -> bool:
            # A driver gives its lease back before it prints the leaderboard.
            prints = driver is not None and driver.is_near() and not driver.is_dead()
            return not prints and holder(ledger, sweep.id) is None

        # An earlier detached driver may have left a log to which the present one does not print.
        if log.exists() and (driver is None or driver.detached):
            detached.follow(log, detached.last_lines(log), ended, show)
        else:
            _show_progress(sweep, ledger, observer)
    return exit_code(sweep.status().state, failed=bool(sweep.failed()))


def _show_progress(sweep: Sweep, ledger: Ledger, observer: Observer) -> None:
    """Show the progress of a sweep until no process drives it."""
    try:
        while holder(ledger, sweep.id) is not None:
            observer.show(sweep.status().progress)
            time.sleep(_LOOK_SECONDS)
    finally:
        observer.close()


def exit_code(state: str, *, failed: bool) -> Exit:
    """Return the exit code of a sweep that no process drives any more.

    Args:
        state: state of the sweep.
        failed: whether a trial has failed.
    """
    if state not in FINISHED_SWEEP:
        return Exit.RESUMABLE
    return Exit.SOME_FAILED if failed or state == "FAILED" else Exit.COMPLETE
