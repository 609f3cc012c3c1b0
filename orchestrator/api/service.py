"""The service: run it, submit sweeps to it and follow them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator import provenance
from orchestrator.accounts import CODE_AS_USERS
from orchestrator.api.status import state_without_driver
from orchestrator.api.sweep import Sweep
from orchestrator.api.workspace import Workspace, one_of
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import detached, preflight, user_code
from orchestrator.driver.admission import DRIVER_OPTIONS, RETRY_FAILED, current_owner
from orchestrator.driver.user_code import AS_USER, runs_code_as_users
from orchestrator.errors import BadInput, Exit
from orchestrator.ledger import submissions
from orchestrator.ledger.audit import COMMAND_LINE, Asked
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.known import known_sweeps
from orchestrator.ledger.submissions import Order, Submission
from orchestrator.service import discovery, service
from orchestrator.service.discovery import MOST_SILENT_SECONDS, Rounds
from orchestrator.service.start_order import DRIVERS_AT_ONCE
from orchestrator.system import System

__all__ = [
    "DRIVERS_AT_ONCE",
    "DRIVER_OPTIONS",
    "MOST_SILENT_SECONDS",
    "RETRY_FAILED",
    "SERVER",
    "Rounds",
    "RunningService",
    "end_of_log",
    "follow",
    "is_supervised",
    "release",
    "run_code_as_users",
    "running",
    "serve",
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
        root: folder of everything that its sweeps write.
        process: of the service.
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
        say: receives a line for each decision.
        drivers: most drivers at once.
        stop_drivers: whether the drivers save their trials and end too: for a container or a batch job.
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.
        beside: what is held meanwhile, such as the HTTP server.
        rounds: receives each completed round of the supervision, or None.

    Raises:
        BadInput: `drivers` is not positive, or a path is wrong.
        Busy: another service supervises the ledger.
        NoDatabase: the ledger's server does not answer.
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
        group: of this machine; only the code of its members is run.
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.
        data: folder of the data sets; if None, `SWEEP_DATA` or else `data`.

    Raises:
        BadInput: this process is not root's, on Linux; there is no such group; an account could read or
            replace what is the service's; or it could not run the Python of the service.
    """
    workspace = Workspace.at(root, data)
    user_code.check_service(group, workspace.paths, workspace.data)
    os.environ[CODE_AS_USERS] = group


def running(*, root: str | Path | None = None) -> RunningService | None:
    """Return the service that runs for a root on this machine, or None.

    Args:
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`. `SWEEP_SERVER`
            replaces it.

    Raises:
        BadInput: no service runs for the root that `SWEEP_SERVER` names.
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
        sweep: to be run.
        new: whether to run another sweep of the same file.
        key: identifies the submission, so that repeating it adds nothing; None for no key.
        options: arguments of `Sweep.run` for the driver; no secrets, because they are written to the ledger.
            Those that are not given have the defaults of `Sweep.run`.
        owner: in whose name the sweep runs; if None, `SWEEP_OWNER` or else the user of this process.
        only_own: whether to refuse a sweep that the ledger knows and the owner has not submitted.
        only_ended: whether to refuse a sweep that waits or runs.
        withdraw: whether to withdraw the stop request of a person for a sweep that still waits or runs.
        asked: who asks for it, for the audit log; None for the command line.

    Returns:
        The submission, and whether this call has added or queued it.

    Raises:
        BadInput: as `Sweep.run`, another submission has the key, or the sweep is another owner's.
        BadData: as `Sweep.run`.
        Busy: the sweep waits or runs, and only one that has ended may be submitted, or a person has asked it
            to stop.
        OverQuota: as many sweeps of the owner wait or run as a quota allows.
    """
    workspace, specification = sweep.workspace, sweep.specification
    owner = owner or current_owner()
    sweep.admit(owner)
    preflight.check_paths(workspace.paths)
    workspace.paths.create()
    order = Order(
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


def release(name: str, *, asked: Asked | None = None, root: str | Path | None = None) -> str:
    """Queue a parked sweep again; return its id.

    Args:
        name: id of the sweep, or its beginning.
        asked: who asks for it, for the audit log; None for the command line.
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: no submitted sweep matches, or it is not parked.
    """
    with Workspace.at(root).ledger() as ledger:
        ids = [sweep_id for sweep_id, known in known_sweeps(ledger).items() if known.owner is not None]
        sweep_id = one_of(ids, name)
        asked = asked or Asked(COMMAND_LINE, "release", sweep_id)
        return submissions.release(ledger, sweep_id, asked=asked).sweep_id


def end_of_log(sweep: Sweep) -> int:
    """Return the position in the log of the drivers of a sweep, in bytes, where their next output begins."""
    return detached.end_of(sweep.workspace.paths.driver_log(sweep.id))


def is_supervised(sweep: Sweep) -> bool:
    """Return True if a sweep waits in the service, or runs under its supervision."""
    with sweep.workspace.ledger() as ledger:
        entry = submissions.submission(ledger, sweep.id)
    return entry is not None and entry.state in {"QUEUED", "STARTED"}


def follow(sweep_id: str, show: Show, start: int | None = None, *, root: str | Path | None = None) -> Exit:
    """Show what the drivers of a submitted sweep print, until it has ended or is parked.

    Args:
        sweep_id: of the sweep.
        show: receives what is printed, and why the sweep waits.
        start: position in the log of the drivers to begin at, in bytes; None for its last lines.
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Returns:
        The exit code of the sweep; RESUMABLE if it was stopped or is parked.

    Raises:
        BadInput: the sweep was not submitted.
    """
    workspace = Workspace.at(root)
    log = workspace.paths.driver_log(sweep_id)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    shown: str | None = None
    with workspace.ledger() as ledger:

        def look() -> Submission:
            entry = submissions.submission(ledger, sweep_id)
            if entry is None:
                raise BadInput(sweep_id, "must have been submitted", "a sweep that was not", "Use `follow`.")
            return entry

        def is_over() -> bool:
            nonlocal shown
            entry = look()
            phrase = _phrase(entry, ledger.system)
            if phrase is not None and phrase != shown:
                show(f"{sweep_id}: {phrase}\n")
            shown = phrase
            return entry.state in {"PARKED", "ENDED"}

        detached.follow(log, detached.last_lines(log) if start is None else start, is_over, show)
        last = look()
    if last.state == "ENDED" and last.code is not None:
        return Exit(last.code)
    return Exit.RESUMABLE


def _phrase(submission: Submission, system: System) -> str | None:
    """Return why a submission waits, or why it has ended; None if its driver may run."""
    if submission.state == "STARTED":
        return None
    if submission.state == "ENDED":
        return submission.cause
    state, reason = state_without_driver(submission, system) or ("ENDED", None)
    return f"{state}: {reason}" if reason else state
