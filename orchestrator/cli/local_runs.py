"""Verbs that run sweeps, on this machine: run a sweep here, or submit it to the service of a root.

Verbs with `--server` do not import this module, because it imports the ledger, the driver and the service.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from orchestrator.api import serving
from orchestrator.api.clusters import available
from orchestrator.api.live import live as live_sweep
from orchestrator.api.local import LocalBackend
from orchestrator.api.local_sweep import Sweep
from orchestrator.api.serving import RunningService
from orchestrator.api.workspace import Workspace
from orchestrator.cli import live_view
from orchestrator.cli.printing import print_warnings, submitted
from orchestrator.cli.run_options import RunOptions
from orchestrator.driver import submitted_sweep
from orchestrator.driver.detached import NOTIFY
from orchestrator.driver.log import Observer
from orchestrator.driver.notifications import run_notified
from orchestrator.errors import BadInput, Exit
from orchestrator.output import Console, write

_MOST_CHANGES = 8
"""Largest number of changes of a file that are shown."""


@dataclass(frozen=True)
class LocalRuns:
    """The verbs that run sweeps, on the ledger of a root on this machine.

    Attributes:
        options: Options of the verb.
    """

    options: RunOptions

    def run(
        self,
        file: Path,
        profile: str | None,
        overrides: list[str] | None,
        budget: Mapping[str, str | int],
        *,
        new: bool,
        resume: bool,
    ) -> int:
        """Run or resume the sweep of a file, by the running service if there is one; return its exit code."""
        service = service_for(self.options)
        options = with_root_of(service, self.options)
        sweep = chosen_sweep(file, profile, overrides, options, new=new, resume=resume)
        sweep = sweep.extended(**budget) if budget else sweep
        if service is None or (not budget and sweep.is_finished):
            return run_here(sweep, options)
        return _run_by_service(sweep, options, new=new)

    def submit(
        self,
        file: Path,
        profile: str | None,
        overrides: list[str] | None,
        *,
        new: bool,
        resume: bool,
        key: str | None,
    ) -> tuple[str, bool, bool]:
        """Submit the sweep of a file; return its ID, whether it was added, and whether a service runs."""
        service = serving.running(root=self.options.root)
        options = with_root_of(service, self.options)
        sweep = chosen_sweep(file, profile, overrides, options, new=new, resume=resume)
        return *submit_sweep(sweep, options, new=new, key=key), service is not None

    def resume(self, sweep: str, budget: Mapping[str, str | int]) -> int:
        """Resume a sweep of the ledger, by the running service if there is one; return its exit code."""
        service = service_for(self.options)
        options = with_root_of(service, self.options)
        selected = Sweep.find(sweep, root=options.root, data=options.data)
        selected = selected.extended(**budget) if budget else selected
        if service is None or (not budget and selected.is_finished):
            return run_here(selected, options)
        return _run_by_service(selected, options, withdraw=True)

    def retry(self, sweep: str) -> int:
        """Run the failed trials of a sweep again in this process; return its exit code."""
        selected = Sweep.find(sweep, root=self.options.root, data=self.options.data)
        return run_here(selected, self.options, retry=True)


def service_for(options: RunOptions) -> RunningService | None:
    """Return the running service, or None to run a sweep in this process.

    A sweep that a batch system starts (`--unless-stopped`) is supervised by that system.
    """
    if options.here or options.unless_stopped:
        return None
    return serving.running(root=options.root)


def with_root_of(service: RunningService | None, options: RunOptions) -> RunOptions:
    """Return options whose root is that of the running service, if there is one."""
    return replace(options, root=service.root) if service else options


def chosen_sweep(
    file: Path,
    profile: str | None,
    overrides: list[str] | None,
    options: RunOptions,
    *,
    new: bool,
    resume: bool,
) -> Sweep:
    """Return the sweep of a search-space file; on a terminal, ask which one if the file has changed.

    Raises:
        BadInput: `new` and `resume` are given, or the file is wrong.
    """
    if new and resume:
        raise BadInput("--new", "cannot be combined with `--resume`", "", "Leave one of them out.")

    def load(*, new: bool) -> Sweep:
        return Sweep.load(
            file,
            profile=profile or "auto",
            overrides=overrides or (),
            new=new,
            hardware=available(root=options.root),
            root=options.root,
            data=options.data,
        )

    if not file.exists():
        _refuse_missing(file, options)
    sweep = load(new=new)
    if new or (changed := sweep.before_change()) is None:
        return sweep
    earlier, changes = changed
    shown = "; ".join(changes[:_MOST_CHANGES])
    more = f"; and {len(changes) - _MOST_CHANGES} more" if len(changes) > _MOST_CHANGES else ""
    write(f"{file.name} was changed since its sweep {earlier.id} ({earlier.state}): {shown}{more}.\n")
    if resume:
        return earlier
    if sys.stdin.isatty() and sys.stdout.isatty() and not options.detach:
        question = f"Start another sweep, {sweep.id} [n], continue {earlier.id} [r], or quit [q]?"
        answer = typer.prompt(question, default="q", show_default=False).strip().lower()[:1]
        if answer == "r":
            return earlier
        if answer == "n":
            return load(new=True)
        raise typer.Abort
    if earlier.is_finished:  # else it is refused
        write(f"This starts another sweep, {sweep.id}; `--resume` continues {earlier.id} instead.\n")
    return sweep


def _refuse_missing(file: Path, options: RunOptions) -> None:
    """Refuse a missing file if its sweep can be resumed; the loader refuses other missing files."""
    try:
        known = Sweep.find(f"{file.stem}-", root=options.root)
    except BadInput:
        return
    remedy = f"`resume {known.id}` continues the sweep without the file."
    raise BadInput(str(file)[:80], "does not exist", "", remedy)


def submit_sweep(
    sweep: Sweep, options: RunOptions, *, new: bool = False, key: str | None = None, withdraw: bool = False
) -> tuple[str, bool]:
    """Submit a sweep; return its ID and whether it was added or queued again.

    Raises:
        BadInput: `--notify` is given. The URL of a webhook is a secret and must not reach the ledger.
    """
    if options.notify is not None:
        must, got = "cannot be given here, because the service starts the driver", ""
        remedy = f"Set {NOTIFY} for `serve` instead, or run the sweep with `--here`."
        raise BadInput("--notify", must, got, remedy)
    own = {name: getattr(options, name) for name in serving.DRIVER_OPTIONS}
    if not withdraw:
        print_warnings(sweep.warnings())
    submission, is_added = serving.submit(sweep, new=new, key=key, withdraw=withdraw, options=own)
    return submission.sweep_id, is_added


def _run_by_service(sweep: Sweep, options: RunOptions, *, new: bool = False, withdraw: bool = False) -> int:
    """Submit a sweep and follow it; `withdraw` cancels an earlier stop request."""
    start = serving.end_of_log(sweep)
    sweep_id, is_added = submit_sweep(sweep, options, new=new, withdraw=withdraw)
    write(submitted(sweep_id, is_added=is_added))
    begin = start if is_added and sweep_id == sweep.id else None
    return follow_submitted(sweep_id, options.root, begin, plain=options.plain)


def follow_submitted(sweep_id: str, root: Path, start: int | None = None, *, plain: bool = False) -> int:
    """Follow a sweep of the ledger of a root; return its exit code, or 5 after Ctrl-C."""
    return live_view.follow(LocalBackend(root), sweep_id, start, plain=plain)


def run_here(sweep: Sweep, options: RunOptions, *, retry: bool = False) -> int:
    """Run or resume a sweep in this process, or in the background with `--detach`; return its exit code."""
    if options.detach:
        return _run_detached(sweep, options)
    console, what = Console(soft_wrap=True), sweep.specification

    def run_observed(observer: Observer) -> Exit:
        return sweep.run(
            observer,
            deadline=options.deadline,
            tracking_patience=options.tracking_patience,
            wait=options.wait,
            unless_stopped=options.unless_stopped,
            retry_failed=retry,
        )

    display = live_view.observer(
        lambda: live_sweep(sweep.id, root=sweep.workspace.paths.root),
        console,
        what.metric,
        quiet=options.quiet,
        plain=options.plain,
    )
    with closing(display):
        if what.scheduler.is_default:
            display.say(f"scheduler: {what.scheduler.phrase(what.training)}")
        code = run_notified(options.notify, sweep.id, what.metric, display, run_observed)
    show_result(sweep.id, sweep.workspace.paths.root)
    return code


def _run_detached(sweep: Sweep, options: RunOptions) -> int:
    """Run a sweep in the background and follow it; only follow one that is running."""
    backend, plain = LocalBackend(options.root), options.plain or options.quiet
    if sweep.state != "NEW" and sweep.status().driver is not None:
        return live_view.follow(backend, sweep.id, plain=plain)
    driver = serving.start(sweep, ["-m", "orchestrator.sweep", *sys.argv[1:]])
    write(f"Process {driver.process.pid} drives {sweep.id}; its output goes to {driver.log}.\n")
    code = live_view.watched(backend, sweep.id, driver.follow, plain=plain)
    if code < 0:
        write(f"Signal {-code} ended the driver; run the same command to resume.\n")
        return Exit.RESUMABLE
    return code


def show_result(sweep_id: str, root: Path) -> None:
    """Print the leaderboard of a sweep of a root, its answer, and the commands that show more."""
    workspace = Workspace.at(root)
    with workspace.ledger() as ledger:
        submitted_sweep.show_result(ledger, workspace.paths, sweep_id, Console(soft_wrap=True))
