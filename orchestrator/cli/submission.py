"""Hand a sweep to the service from the command line, and follow what its drivers print."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from orchestrator.api import service
from orchestrator.api.live import live
from orchestrator.api.service import RunningService
from orchestrator.api.sweep import Sweep
from orchestrator.cli.live import shown_live
from orchestrator.cli.run_options import RunOptions
from orchestrator.driver.notifications import NOTIFY
from orchestrator.errors import BadInput, Exit
from orchestrator.output import write


def server_for(options: RunOptions) -> RunningService | None:
    """Return the service to which a sweep is submitted, or None if this process is to run it.

    A start by a batch system, `--unless-stopped`, is supervised by that system.
    """
    if options.here or options.unless_stopped:
        return None
    return service.running(root=options.root)


def with_root_of(server: RunningService | None, options: RunOptions) -> RunOptions:
    """Return options whose root is that of a service; without one, as they are."""
    return replace(options, root=server.root) if server else options


def submit(
    sweep: Sweep, options: RunOptions, *, new: bool = False, key: str | None = None, withdraw: bool = False
) -> tuple[str, bool]:
    """Submit a sweep; return its id, and whether it was added or queued again.

    Raises:
        BadInput: as `service.submit`, or `--notify` is given: the address of a webhook is a secret, which
            must not reach the ledger.
    """
    if options.notify is not None:
        remedy = f"Set {NOTIFY} for `serve` instead, or run the sweep with `--here`."
        raise BadInput(
            "--notify",
            "must be set for the service, which starts the driver",
            "an option of this command",
            remedy,
        )
    own = {name: getattr(options, name) for name in service.DRIVER_OPTIONS}
    submission, is_added = service.submit(sweep, new=new, key=key, withdraw=withdraw, options=own)
    return submission.sweep_id, is_added


def run_by_service(sweep: Sweep, options: RunOptions, *, new: bool = False, withdraw: bool = False) -> int:
    """Submit a sweep and follow it until it has ended; return its exit code, or 5 after Ctrl-C.

    Args:
        sweep: to be run.
        options: of the command.
        new: whether to run another sweep of the same file.
        withdraw: whether to withdraw a request to stop the sweep, if it has not ended yet.
    """
    start = service.end_of_log(sweep)
    sweep_id, is_added = submit(sweep, options, new=new, withdraw=withdraw)
    write(f"{sweep_id} is submitted.\n" if is_added else f"{sweep_id} was submitted before.\n")
    begin = start if is_added and sweep_id == sweep.id else None
    return follow_submitted(sweep_id, options.root, begin, plain=options.plain)


def follow_submitted(sweep_id: str, root: Path, start: int | None = None, *, plain: bool = False) -> int:
    """Follow a submitted sweep; return its exit code, or 5 after Ctrl-C.

    Args:
        sweep_id: of the sweep.
        root: folder of everything that the sweep writes.
        start: where to begin in the log of its drivers, in bytes; None for its last lines.
        plain: whether to print lines on a terminal too.
    """

    def watch() -> int:
        with shown_live(lambda: live(sweep_id, root=root), plain=plain) as show:
            return service.follow(sweep_id, show or write, start, root=root)

    code = until_interrupted(sweep_id, watch)
    return Exit.STILL_RUNNING if code is None else code


def until_interrupted(sweep_id: str, watch: Callable[[], int]) -> int | None:
    """Return what `watch` returns, or None if Ctrl-C ended it."""
    try:
        return watch()
    except KeyboardInterrupt:
        write(f"{sweep_id} is still running; `follow {sweep_id}` shows it, `stop {sweep_id}` ends it.\n")
        return None
