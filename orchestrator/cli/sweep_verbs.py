"""Verbs that prepare, check, run, resume, stop and follow a sweep."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from orchestrator import Observer
from orchestrator.api import serving, templates
from orchestrator.api.clusters import available, this_machine
from orchestrator.api.live import live as live_sweep
from orchestrator.api.local import LocalBackend
from orchestrator.api.local_sweep import Sweep
from orchestrator.api.planning import planned
from orchestrator.api.serving import RunningService
from orchestrator.api.workspace import DEFAULT_DATA, DEFAULT_ROOT
from orchestrator.cli import live_view
from orchestrator.cli.options import EXECUTION, Data, Json, Key, Plain, Root, Server, SweepId, backend_of
from orchestrator.cli.printing import print_json, print_line
from orchestrator.cli.result_verbs import show_result
from orchestrator.cli.run_options import (
    Extend,
    File,
    Overrides,
    Profile,
    Resume,
    RunOptions,
    with_run_options,
)
from orchestrator.client.following import follow as follow_sweep
from orchestrator.client.http import HttpBackend
from orchestrator.client.protocol import Backend
from orchestrator.driver.notifications import NOTIFY, run_notified
from orchestrator.errors import BadInput, Exit
from orchestrator.output import Console, write
from orchestrator.report.words import near

_MOST_CHANGES = 8
"""Largest number of changes of a file that are shown."""


def init(
    task: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="Name of a search space, such as `listops`.")
    ] = None,
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Folder of the new files.")] = Path(),
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help=f"Write the files of a cluster instead: {', '.join(sorted(templates.CLUSTERS))}.",
        ),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(
            "--script", metavar="FILE", help="Write the search-space file of a Python script, beside it."
        ),
    ] = None,
) -> None:
    """Write a search-space file and its JSON Schema, or the files of a cluster with `--cluster`.

    With `--script train.py`, the file is `train.yaml`, from the options that `argparse`, click or Hydra
    declare, and from what the script reports or prints. It is read, not run. Without arguments, list the
    search spaces. No checkout of the project is needed.

    Example:

        sweep init --script train.py
    """
    if script is not None:
        if task is not None or cluster is not None:
            remedy = "Leave the task and `--cluster` out."
            raise BadInput("init --script", "must be given alone", f"`{task or cluster}`", remedy)
        written_file, guesses = templates.write_for_script(script)
        for guess in guesses:
            print_line(guess)
        print_line(f"{near(written_file.absolute())} is written. Correct it, then check it with")
        print_line(f"  sweep validate {near(written_file.absolute())}")
    elif cluster is not None:
        if folder != Path():
            must = "must be given only a folder"
            raise BadInput("init --cluster", must, f"`{task} {folder}`", "Leave the task out.")
        written = templates.write_cluster(cluster, task or Path())
        for file in written:
            print_line(f"{near(file.absolute())} is written.")
        first = near(written[0].absolute())
        print_line(f"Fill in the values at the top of {first}; its comments describe the next steps.")
    elif task is None:
        print_line("Search spaces: " + ", ".join(templates.tasks()))
    else:
        file, schema = templates.write_search_space(task, folder)
        print_line(f"{near(file.absolute())} is written, with {schema.name} for editors.")
        print_line(f"Run it with: sweep {near(file.absolute())}")


def import_options(
    argparse: Annotated[
        Path, typer.Option("--argparse", metavar="SCRIPT", help="Python script that uses argparse.")
    ],
) -> None:
    """Print a draft of a search-space file for a script with command-line options.

    The script is read, not run. Ranges are guessed from types and defaults: check them before the sweep.

    Example:

        sweep import --argparse train.py
    """
    print_line(templates.draft_from_argparse(argparse).rstrip("\n"))


@with_run_options
def run(
    file: File,
    profile: Profile = None,
    overrides: Overrides = None,
    extend: Extend = None,
    new: Annotated[bool, typer.Option("--new", help="Start another sweep of the same file.")] = False,
    resume: Resume = False,
    server: Server = None,
    *,
    options: RunOptions,
) -> int:
    """Run the sweep of a search-space file, or resume it where it stopped.

    If a service runs for the root, or SWEEP_SERVER or `--server` names one, the sweep is submitted to it and
    followed. Ctrl-C then only detaches.

    Exit codes: 0 complete, 2 bad input, 3 some trials failed, 4 interrupted and resumable, 5 still running,
    6 driven by another process.

    Example:

        sweep run search_spaces/listops.yaml --set budget.trials=4
    """
    if server is not None:
        if extend is not None:
            remedy = "Use `resume SWEEP --extend` for a sweep that has ended."
            raise BadInput("--extend", "must be left out of `run` with --server", extend, remedy)
        backend, chosen = HttpBackend(server), profile or "auto"
        submitted = backend.submit(file, profile=chosen, overrides=overrides or (), new=new)
        write(_submitted(submitted.id, is_added=submitted.added))
        return _follow(backend, submitted.id, plain=options.plain)
    service = service_for(options)
    options = with_root_of(service, options)
    sweep = _extended(chosen_sweep(file, profile, overrides, options, new=new, resume=resume), extend)
    if service is None or (extend is None and sweep.is_finished):
        return run_here(sweep, options)
    return _run_by_service(sweep, options, new=new)


@with_run_options
def submit(
    file: File,
    profile: Profile = None,
    overrides: Overrides = None,
    new: Annotated[bool, typer.Option("--new", help="Submit another sweep of the same file.")] = False,
    resume: Resume = False,
    key: Key = None,
    server: Server = None,
    *,
    options: RunOptions,
) -> int:
    """Submit the sweep of a search-space file and return immediately.

    Without a running service, the sweep waits until one is started.

    Example:

        sweep submit search_spaces/listops.yaml --key listops-monday
    """
    if server is not None:
        chosen = profile or "auto"
        backend = HttpBackend(server)
        print_line(backend.submit(file, profile=chosen, overrides=overrides or (), new=new, key=key).id)
        return Exit.COMPLETE
    service = serving.running(root=options.root)
    options = with_root_of(service, options)
    sweep = chosen_sweep(file, profile, overrides, options, new=new, resume=resume)
    sweep_id, _ = submit_sweep(sweep, options, new=new, key=key)
    print_line(sweep_id)
    if service is None:
        print_line("No service is running for this root: start one with `sweep serve`.")
    return Exit.COMPLETE


@with_run_options
def resume(
    sweep: SweepId, extend: Extend = None, server: Server = None, key: Key = None, *, options: RunOptions
) -> int:
    """Resume a stopped, parked or interrupted sweep without its file; with `--extend`, one that has ended.

    A sweep of a service is queued again and followed; Ctrl-C then only detaches.

    Example:

        sweep resume retrieval --extend trials=128
    """
    if server is not None:
        backend, budget = HttpBackend(server), _budget(extend)
        if budget:
            sweep_id = backend.extend(sweep, key=key, **budget).id
        else:
            _refuse_key(key, "with --extend")
            sweep_id = backend.resume(sweep).id
        write(_submitted(sweep_id, is_added=True))
        return _follow(backend, sweep_id, plain=options.plain)
    _refuse_key(key, "with --server")
    service = service_for(options)
    options = with_root_of(service, options)
    selected = _extended(Sweep.find(sweep, root=options.root, data=options.data), extend)
    if service is None or (extend is None and selected.is_finished):
        return run_here(selected, options)
    return _run_by_service(selected, options, withdraw=True)


@with_run_options
def retry_failed(sweep: SweepId, server: Server = None, key: Key = None, *, options: RunOptions) -> int:
    """Run the failed trials of a sweep again, each from its last checkpoint.

    On a remote service the sweep is queued again and followed; here it runs in this process.

    Example:

        sweep retry-failed retrieval
    """
    if server is not None:
        backend = HttpBackend(server)
        sweep_id = backend.retry(sweep, key=key).id
        write(_submitted(sweep_id, is_added=True))
        return _follow(backend, sweep_id, plain=options.plain)
    _refuse_key(key, "with --server")
    return run_here(Sweep.find(sweep, root=options.root, data=options.data), options, retry=True)


def stop(sweep: SweepId, root: Root = DEFAULT_ROOT, server: Server = None) -> None:
    """Save every trial of a sweep and stop it; it stays stopped until `resume`.

    Example:

        sweep stop retrieval
    """
    stopped = backend_of(server, root).stop(sweep)
    does = f"{stopped.driver} saves its trials and ends" if stopped.driver else "it is not started"
    print_line(f"{stopped.id}: {does}.")


def follow(sweep: SweepId, root: Root = DEFAULT_ROOT, plain: Plain = False, server: Server = None) -> int:
    """Show a sweep and the output of its driver until it ends; Ctrl-C only detaches.

    Exit codes: those of the sweep, or 5 if it is still running.

    Example:

        sweep follow retrieval
    """
    return _follow(backend_of(server, root), sweep, plain=plain)


def validate(
    file: File,
    profile: Profile = None,
    overrides: Overrides = None,
    data: Data = DEFAULT_DATA,
    root: Root = DEFAULT_ROOT,
    flops: Annotated[
        bool,
        typer.Option(
            "--flops",
            help="Also count FLOPs of a training step (takes seconds per network).",
            rich_help_panel=EXECUTION,
        ),
    ] = False,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Check a search-space file and print what would run, with the size of each network; nothing is written.

    Mistakes are reported at once; the sizes take seconds.

    Example:

        sweep validate search_spaces/retrieval.yaml --profile laptop
    """
    name, changed = profile or "auto", overrides or ()
    if server is not None:
        plan = HttpBackend(server).validate(file, profile=name, overrides=changed)
    else:
        where = Sweep.load(
            file, profile=name, overrides=changed, hardware=this_machine(), root=root, data=data
        )
        plan = planned(where, work=flops)
    if as_json:
        print_json(asdict(plan))
        return
    for line in plan.lines:
        print_line(line)


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
        question = f"Start another sweep, {sweep.id} [n], go on with {earlier.id} [r], or leave it [q]?"
        answer = typer.prompt(question, default="q", show_default=False).strip().lower()[:1]
        if answer == "r":
            return earlier
        if answer == "n":
            return load(new=True)
        raise typer.Abort
    if earlier.is_finished:  # else it is refused
        write(f"This starts another sweep, {sweep.id}; `--resume` goes on with {earlier.id} instead.\n")
    return sweep


def _refuse_missing(file: Path, options: RunOptions) -> None:
    """Refuse a missing file whose sweep the ledger has; the loader refuses others."""
    try:
        known = Sweep.find(f"{file.stem}-", root=options.root)
    except BadInput:
        return
    remedy = f"`resume {known.id}` goes on without it."
    raise BadInput(str(file)[:80], "does not exist", "", remedy)


def _extended(sweep: Sweep, extend: str | None) -> Sweep:
    return sweep if extend is None else sweep.extend(**_budget(extend))


def _budget(extend: str | None) -> dict[str, str]:
    """Return the changes of the budget by key."""
    if extend is None:
        return {}
    name, equals, value = extend.partition("=")
    if not equals or not name.isidentifier():
        raise BadInput("--extend", "must be KEY=VALUE", repr(extend), "For example --extend trials=128.")
    return {name: value}


def _refuse_key(key: str | None, where: str) -> None:
    if key is not None:
        remedy = "Leave it out: repeating this command changes nothing."
        raise BadInput("--key", f"must be given {where} only", key, remedy)


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
    submission, is_added = serving.submit(sweep, new=new, key=key, withdraw=withdraw, options=own)
    return submission.sweep_id, is_added


def _submitted(sweep_id: str, *, is_added: bool) -> str:
    return f"{sweep_id} is submitted.\n" if is_added else f"{sweep_id} was submitted before.\n"


def _run_by_service(sweep: Sweep, options: RunOptions, *, new: bool = False, withdraw: bool = False) -> int:
    """Submit a sweep and follow it; `withdraw` cancels an earlier stop request."""
    start = serving.end_of_log(sweep)
    sweep_id, is_added = submit_sweep(sweep, options, new=new, withdraw=withdraw)
    write(_submitted(sweep_id, is_added=is_added))
    begin = start if is_added and sweep_id == sweep.id else None
    return follow_submitted(sweep_id, options.root, begin, plain=options.plain)


def follow_submitted(sweep_id: str, root: Path, start: int | None = None, *, plain: bool = False) -> int:
    """Follow a sweep of the ledger of a root; return its exit code, or 5 after Ctrl-C."""
    return _follow(LocalBackend(root), sweep_id, start, plain=plain)


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
    show_result(sweep, console)
    return code


def _run_detached(sweep: Sweep, options: RunOptions) -> int:
    """Run a sweep in the background and follow it; only follow one that is running."""
    backend, plain = LocalBackend(options.root), options.plain or options.quiet
    if sweep.state != "NEW" and sweep.status().driver is not None:
        return _follow(backend, sweep.id, plain=plain)
    driver = serving.start(sweep, ["-m", "orchestrator.sweep", *sys.argv[1:]])
    write(f"Process {driver.process.pid} drives {sweep.id}; its output goes to {driver.log}.\n")
    code = _watched(backend, sweep.id, driver.follow, plain=plain)
    if code < 0:
        write(f"Signal {-code} ended the driver; run the same command to resume.\n")
        return Exit.RESUMABLE
    return code


def _follow(backend: Backend, sweep: str, start: int | None = None, *, plain: bool) -> int:
    """Follow a sweep from a position in its log; return its exit code, or 5 after Ctrl-C."""
    now = backend.status(sweep)
    if now.driver and now.submission is None:
        write(f"{now.driver[:1].upper()}{now.driver[1:]} drives {now.id}.\n")
    return _watched(backend, now.id, lambda show: follow_sweep(backend, now.id, show, start), plain=plain)


def _watched(
    backend: Backend, sweep_id: str, watch: Callable[[Callable[[str], None]], int], *, plain: bool
) -> int:
    """Watch a sweep, with a live view on a terminal; return its exit code, or 5 after Ctrl-C."""
    try:
        with live_view.shown_live(lambda: backend.live(sweep_id), plain=plain) as show:
            return watch(show or write)
    except KeyboardInterrupt:
        write(f"{sweep_id} is still running; `follow {sweep_id}` shows it, `stop {sweep_id}` stops it.\n")
        return Exit.STILL_RUNNING
