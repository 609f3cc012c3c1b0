"""Service: run it, find it, submit sweeps to it; drivers in the background."""

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
from orchestrator.api.local_sweep import Sweep
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
    """A service that runs on this machine.

    Attributes:
        root: Folder of everything that its sweeps write.
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
    """Supervise the submitted sweeps of a root until SIGTERM or SIGINT; return when the service has left.

    Must be called in the main thread. Its drivers go on, unless `stop_drivers` is true. The process is ended
    if the service has not left ten seconds after a signal, and at a second one.

    Args:
        say: Receives a line for each decision.
        drivers: Largest number of drivers at once.
        stop_drivers: Whether the drivers save their trials and end too: for a container or a batch job.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
        beside: Context that is held meanwhile, such as the HTTP server.
        rounds: Receives each completed round of the supervision, or None.

    Raises:
        BadInput: `drivers` is not positive, or a path is wrong.
        Busy: Another service supervises the ledger.
        NoDatabase: The ledger's server does not answer.
    """
    if drivers < 1:
        raise BadInput("--drivers", "must be at least 1", str(drivers), "Leave it out for the default.")
    paths = Workspace.at(root).paths
    return service.serve(
        paths, say, drivers_at_once=drivers, stop_drivers=stop_drivers, beside=beside, rounds=rounds
    )


def run_code_as_users(group: str, *, root: str | Path | None = None, data: str | Path | None = None) -> None:
    """Let this process, its checks and its drivers run the code of each owner as the account of that name.

    Creates the root if it is missing.

    Args:
        group: Group of this machine; only the code of its members is run.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
        data: Folder of the data sets; `SWEEP_DATA` or else `data` if None.

    Raises:
        BadInput: This process is not root's, on Linux; there is no such group; an account could read or
            replace what is the service's; or it could not run the Python of the service.
    """
    workspace = Workspace.at(root, data)
    user_code.check_service(group, workspace.paths, workspace.data)
    os.environ[CODE_AS_USERS] = group


def running(*, root: str | Path | None = None) -> RunningService | None:
    """Return the service that runs for a root on this machine, or None.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None. `SWEEP_SERVER`
            replaces it.

    Raises:
        BadInput: No service runs for the root that `SWEEP_SERVER` names.
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
    sweep: Sweep,
    *,
    new: bool = False,
    key: str | None = None,
    options: Mapping[str, Any] | None = None,
    owner: str | None = None,
    only_own: bool = False,
    only_ended: bool = False,
    withdraw: bool = False,
    asked: Asked | None = None,
) -> tuple[Submission, bool]:
    """Hand a sweep to the service, once everything that can be checked has been.

    The submission survives a power failure once this returns. A sweep that is waiting or running stays as it
    is; one that was stopped, was parked or has ended is queued again.

    Args:
        sweep: The sweep.
        new: Whether to run another sweep of the same file.
        key: Idempotency key, so that repeating the submission adds nothing; None for no key.
        options: Arguments of `Sweep.run` for the driver; no secrets, because they are written to the ledger.
            Those that are not given have the defaults of `Sweep.run`.
        owner: Owner of the sweep; `SWEEP_OWNER` or else the user of this process if None.
        only_own: Whether to refuse a sweep that the ledger knows and the owner has not submitted.
        only_ended: Whether to refuse a sweep that waits or runs.
        withdraw: Whether to withdraw the stop request of a person for a sweep that still waits or runs.
        asked: Entry for the audit log; one of the command line if None.

    Returns:
        The submission, and whether this call has added or queued it.

    Raises:
        BadInput: As `Sweep.run`, another submission has the key, or the sweep is another owner's.
        BadData: As `Sweep.run`.
        Busy: The sweep waits or runs, and only one that has ended may be submitted, or a person has asked it
            to stop.
        OverQuota: As many sweeps of the owner wait or run as a quota allows.
    """
    workspace, specification = sweep.workspace, sweep.specification
    owner = owner or current_owner()
    sweep.admit(owner)
    preflight.check_paths(workspace.paths)
    workspace.paths.create()
    order = SubmissionRequest(
        owner,
        specification.document(),
        specification.source_text,
        {"data": str(workspace.data), **DRIVER_OPTIONS, **_code(sweep), **(options or {})},
        key,
        provenance.git_commit(),
    )

    def choose(is_known: Callable[[str], bool]) -> str:
        return _unused(specification, is_known) if new else sweep.id

    with workspace.ledger(create=True) as ledger:
        submitted = submissions.submit(
            ledger,
            order,
            choose,
            again=True,
            only_own=only_own,
            only_ended=only_ended,
            withdraw=withdraw,
            asked=asked or Asked(COMMAND_LINE, "submit", specification.name, {"new": new}),
        )
    with suppress(OSError):  # it only saves the wait for the next poll
        discovery.knock(workspace.paths.service)
    return submitted


def _code(sweep: Sweep) -> dict[str, bool]:
    """Return the option that binds the code of a sweep to its owner's account, if it is or becomes bound."""
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


def end_of_log(sweep: Sweep) -> int:
    """Return the position in the log of the drivers of a sweep, in bytes, where their next output begins."""
    return detached.end_of(sweep.workspace.paths.driver_log(sweep.id))


@dataclass(frozen=True)
class DetachedDriver:
    """A driver in a process of its own, which outlives the process that started it.

    Attributes:
        process: The process.
        log: File that receives what it prints.
        start: Position in `log`, in bytes, where its output begins.
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
        sweep: The sweep.
        arguments: Arguments of Python for a process that runs it, such as `-m MODULE WORD ...`.

    Raises:
        BadInput: As `Sweep.run`.
        BadData: As `Sweep.run`.
        NoCluster: As `Sweep.run`.
    """
    sweep.admit()
    preflight.check_paths(sweep.workspace.paths)
    log = sweep.workspace.paths.driver_log(sweep.id)
    position = detached.end_of(log)
    return DetachedDriver(detached.begin(arguments, log), log, position)
