"""Service: run it, find it, submit sweeps to it, and start drivers in the background."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator import provenance
from orchestrator.accounts import CODE_AS_USERS
from orchestrator.api.loaded_sweep import LoadedSweep
from orchestrator.api.workspace import Workspace
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import detached, preflight, user_code
from orchestrator.driver.admission import DRIVER_OPTIONS, RETRY_FAILED, current_owner
from orchestrator.driver.user_code import AS_USER, runs_code_as_users
from orchestrator.errors import BadInput, Exit
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.people.audit import COMMAND_LINE, Asked
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.submissions import Submission, SubmissionRequest
from orchestrator.service import discovery, service
from orchestrator.service.discovery import MOST_SILENT_SECONDS, Rounds
from orchestrator.service.start_order import DRIVERS_AT_ONCE
from orchestrator.tracking.shared_delivery import shared_delivery

__all__ = [
    "DRIVERS_AT_ONCE",
    "DRIVER_OPTIONS",
    "MOST_SILENT_SECONDS",
    "RETRY_FAILED",
    "SERVER",
    "DetachedDriver",
    "Rounds",
    "RunningService",
    "end_of_log",
    "run_code_as_users",
    "running",
    "serve",
    "start",
    "submit",
]

SERVER = "SWEEP_SERVER"
"""Environment variable: root folder of the service to which the verbs that run a sweep submit it."""

Show = Callable[[str], None]
"""Receives text as a driver prints it."""


@dataclass(frozen=True)
class RunningService:
    """A running service of this machine.

    Attributes:
        root: Root folder of the service.
        process: Process of the service.
    """

    root: Path
    process: Holder


def serve(
    say: Show,
    *,
    drivers: int = DRIVERS_AT_ONCE,
    stop_drivers: bool = False,
    root: str | Path | None = None,
    beside: AbstractContextManager[object] = nullcontext(),
    rounds: Rounds | None = None,
) -> Exit:
    """Supervise the submitted sweeps of a root until SIGTERM or SIGINT.

    Must be called in the main thread. Drivers continue afterwards unless `stop_drivers` is true. A second
    signal, or a shutdown of more than ten seconds, ends the process at once.

    Args:
        say: Receives a line for each decision.
        drivers: Largest number of concurrent drivers.
        stop_drivers: Whether the drivers save their trials and end too, as in a container or a batch job.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
        beside: Context manager that is active while the service runs, such as the HTTP server.
        rounds: Receives each completed round of the supervision, or None.

    Raises:
        BadInput: `drivers` is not positive, or a path is wrong.
        Busy: Another service supervises the ledger.
        NoDatabase: The ledger's server does not answer.
    """
    if drivers < 1:
        raise BadInput("--drivers", "must be at least 1", str(drivers), "Leave it out for the default.")
    paths = Workspace.at(root).paths
    with shared_delivery(paths):
        return service.serve(
            paths, say, drivers_at_once=drivers, stop_drivers=stop_drivers, beside=beside, rounds=rounds
        )


def run_code_as_users(group: str, *, root: str | Path | None = None, data: str | Path | None = None) -> None:
    """Make this process, its checks and its drivers run the code of each owner as the account of that name.

    Creates the root if it is missing.

    Args:
        group: Group of this machine whose members may run code.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
        data: Folder of the data sets; `SWEEP_DATA` or else `data` if None.

    Raises:
        BadInput: This process does not run as root on Linux; the group does not exist; an account could read
            or replace files of the service; or accounts cannot run the Python of the service.
    """
    workspace = Workspace.at(root, data)
    user_code.check_service(group, workspace.paths, workspace.data)
    os.environ[CODE_AS_USERS] = group


def running(*, root: str | Path | None = None) -> RunningService | None:
    """Return the running service of a root on this machine, or None.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None. `SWEEP_SERVER`
            overrides it.

    Raises:
        BadInput: The root in `SWEEP_SERVER` has no running service.
    """
    named = os.environ.get(SERVER)
    workspace = Workspace.at(named or root)
    process = discovery.running(workspace.paths.service)
    if process is not None:
        return RunningService(workspace.paths.root, process)
    if named:
        remedy = "Start it there with `serve`, or run the sweep here with `--here`."
        raise BadInput(SERVER, "must name the root of a running service", named, remedy)
    return None


def submit(
    sweep: LoadedSweep,
    *,
    new: bool = False,
    key: str | None = None,
    options: Mapping[str, Any] | None = None,
    owner: str | None = None,
    only_own: bool = False,
    only_ended: bool = False,
    withdraw: bool = False,
    asked: Asked | None = None,
    warnings: Sequence[str] = (),
) -> tuple[Submission, bool]:
    """Check a sweep and submit it to the service.

    The submission is durable once this returns. A queued or running sweep is not changed; a stopped, parked
    or finished one is queued again.

    Args:
        sweep: Sweep to submit.
        new: Whether to run another sweep of the same file.
        key: Idempotency key; repeating the submission with the same key adds nothing.
        options: Arguments of `Sweep.run` for the driver, without secrets, because the ledger contains them.
            Others have the defaults of `Sweep.run`.
        owner: Owner of the sweep; `SWEEP_OWNER` or else the user of this process if None.
        only_own: Whether to refuse a sweep of the ledger that another owner, or no owner, has submitted.
        only_ended: Whether to refuse a queued or running sweep.
        withdraw: Whether to withdraw the stop request of a user for a queued or running sweep.
        asked: Entry for the audit log; one of the command line if None.
        warnings: Sentences for the answer to the user, from `LoadedSweep.warnings`.

    Returns:
        The submission, and whether this call has queued it.

    Raises:
        BadInput: As in `Sweep.run`; or another submission has the key, or another owner the sweep.
        BadData: As in `Sweep.run`.
        Busy: The sweep is queued or running and `only_ended` is true, or it has a pending stop request.
        OverQuota: The owner has as many queued and running sweeps as the quota allows.
    """
    workspace, specification = sweep.workspace, sweep.specification
    owner = owner or current_owner()
    sweep.admit(owner)
    preflight.check_paths(workspace.paths)
    workspace.paths.create()
    with workspace.ledger(create=True) as ledger:
        submitted = submissions.submit(
            ledger,
            _request(sweep, owner, key, options or {}),
            _choice(sweep, new=new),
            only_own=only_own,
            only_ended=only_ended,
            withdraw=withdraw,
            asked=asked or Asked(COMMAND_LINE, "submit", specification.name, {"new": new}),
            warnings=warnings,
        )
    with suppress(OSError):  # it only saves the wait for the next poll
        discovery.knock(workspace.paths.service)
    return submitted


def _choice(sweep: LoadedSweep, *, new: bool) -> Callable[[Callable[[str], bool]], str]:
    """Return the function that chooses the ID of a submission, given a predicate of the IDs in use."""
    return lambda is_known: _unused(sweep.specification, is_known) if new else sweep.id


def _request(
    sweep: LoadedSweep, owner: str, key: str | None, options: Mapping[str, Any]
) -> SubmissionRequest:
    """Return the submission of a sweep, with the code that it runs and the options of its driver."""
    specification = sweep.specification
    return SubmissionRequest(
        owner,
        specification.document(),
        specification.source_text,
        {"data": str(sweep.workspace.data), **DRIVER_OPTIONS, **_code(sweep), **options},
        key,
        provenance.git_commit(),
    )


def _code(sweep: LoadedSweep) -> dict[str, bool]:
    """Return the option that binds the code of a sweep to the account of its owner, or no option."""
    if sweep.specification.trainable is None:
        return {}
    with sweep.workspace.ledger(create=True) as ledger:
        known = submissions.submission(ledger, sweep.id)
    is_bound = known is not None and bool(known.options.get(AS_USER))
    return {AS_USER: True} if is_bound or runs_code_as_users() else {}


def _unused(specification: SweepConfig, is_known: Callable[[str], bool]) -> str:
    while is_known(specification.id):
        specification = replace(specification, edition=specification.edition + 1)
    return specification.id


def end_of_log(sweep: LoadedSweep) -> int:
    """Return the end of the drivers' log of a sweep in bytes, where their next output begins."""
    return detached.end_of(sweep.workspace.paths.driver_log(sweep.id))


@dataclass(frozen=True)
class DetachedDriver:
    """A driver in a detached process.

    Attributes:
        process: Process of the driver.
        log: File with its output.
        start: Position of its output in `log`, in bytes.
    """

    process: subprocess.Popen[bytes]
    log: Path
    start: int

    def follow(self, show: Show) -> int:
        """Pass the output of the driver to `show` until the driver ends.

        Returns:
            Exit code of the driver; if a signal has ended it, the negative number of the signal.
        """
        detached.follow(self.log, self.start, lambda: self.process.poll() is not None, show)
        return self.process.returncode


def start(sweep: LoadedSweep, arguments: Sequence[str]) -> DetachedDriver:
    """Check a sweep and start its driver in a detached process.

    Args:
        sweep: Sweep to run.
        arguments: Arguments of Python for the process, such as `-m MODULE WORD ...`.

    Raises:
        BadInput: As in `Sweep.run`.
        BadData: As in `Sweep.run`.
        NoCluster: As in `Sweep.run`.
    """
    sweep.admit()
    preflight.check_paths(sweep.workspace.paths)
    log = sweep.workspace.paths.driver_log(sweep.id)
    position = detached.end_of(log)
    return DetachedDriver(detached.begin(arguments, log), log, position)
