"""The verbs that run, resume and stop a sweep, and those that follow one or check a file before it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator import Observer
from orchestrator.api import following, service
from orchestrator.api.cluster import available, this_machine
from orchestrator.api.live import live as live_sweep
from orchestrator.client.http import HttpBackend
from orchestrator.api.sweep import Plan, Sweep
from orchestrator.api.workspace import DEFAULT_DATA, DEFAULT_ROOT
from orchestrator.cli import live, remote
from orchestrator.cli.display import print_json, print_line
from orchestrator.cli.options import Data, Json, Plain, Root, SweepId
from orchestrator.cli.remote import Key, Server
from orchestrator.cli.results import show_result
from orchestrator.cli.run_options import (
    Extend,
    File,
    Overrides,
    Profile,
    Resume,
    RunOptions,
    with_run_options,
)
from orchestrator.cli.submission import (
    follow_submitted,
    run_by_service,
    server_for,
    until_interrupted,
    with_root_of,
)
from orchestrator.driver.log import Display
from orchestrator.driver.notifications import run_notified
from orchestrator.errors import BadInput, Exit, Refusal
from orchestrator.output import Console, write
from orchestrator.report.answer import size
from trainables.cost import Cost
from trainables.layers import LAYERS
from trainables.trial import ModelSettings

_MOST_CHANGES = 8
"""Most changes of a file that are shown."""


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

    If a service runs for the root, or SWEEP_SERVER names the root of one, or `--server` its address, the
    sweep is submitted to it and followed; Ctrl-C then ends only the following.

    Exit codes: 0 complete, 2 bad input, 3 some trials failed, 4 interrupted and resumable, 5 still running,
    6 driven by another process.

    Example:

        sweep run search_spaces/listops.yaml --set budget.trials=4
    """
    if server is not None:
        plain = options.plain
        return remote.run(server, file, profile=profile, overrides=overrides or (), new=new, plain=plain)
    running = server_for(options)
    options = with_root_of(running, options)
    sweep = _extended(chosen(file, profile, overrides, options, new=new, resume=resume), extend)
    if running is None or (extend is None and sweep.is_finished):
        return run_here(sweep, options)
    return run_by_service(sweep, options, new=new)


def chosen(
    file: Path,
    profile: str | None,
    overrides: list[str] | None,
    options: RunOptions,
    *,
    new: bool,
    resume: bool,
) -> Sweep:
    """Return the sweep of a search-space file; if the file was changed since its last sweep, say so.

    On a terminal, and unless `new` or `resume` decides, a person is asked which of the two it shall be.

    Raises:
        BadInput: both are given, or the file is wrong.
    """
    if new and resume:
        raise BadInput("--new", "must stand without `--resume`", "both", "Leave one of them out.")
    if not file.exists():
        _refuse_missing(file, options)
    sweep = load(file, profile, overrides, new, options)
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
            return load(file, profile, overrides, True, options)
        raise typer.Abort
    if earlier.is_finished:  # else it is refused
        write(f"This starts another sweep, {sweep.id}; `--resume` goes on with {earlier.id} instead.\n")
    return sweep


def _refuse_missing(file: Path, options: RunOptions) -> None:
    """Refuse a file that does not exist, if the ledger has one sweep of it; else what loads it refuses it."""
    try:
        known = Sweep.find(f"{file.stem}-", root=options.root)
    except BadInput:
        return
    raise BadInput(str(file)[:80], "must exist", "no such file", f"`resume {known.id}` goes on without it.")


def load(
    file: Path, profile: str | None, overrides: list[str] | None, new: bool, options: RunOptions
) -> Sweep:
    """Return the sweep of a search-space file, for the hardware that trials can run on."""
    return Sweep.load(
        file,
        profile=profile or "auto",
        overrides=overrides or (),
        new=new,
        hardware=available(root=options.root),
        root=options.root,
        data=options.data,
    )


@with_run_options
def resume(
    sweep: SweepId, extend: Extend = None, server: Server = None, key: Key = None, *, options: RunOptions
) -> int:
    """Resume a sweep from the ledger, without its file.

    If a service runs for the root, the sweep is handed to it and followed. With `--server`, a sweep that was
    paused or stopped goes on there, and with `--extend` one that has ended.

    Example:

        sweep resume retrieval --extend trials=128
    """
    if server is not None:
        return remote.resume(server, sweep, _budget(extend), key)
    _refuse_key(key)
    running = server_for(options)
    options = with_root_of(running, options)
    selected = _extended(Sweep.find(sweep, root=options.root, data=options.data), extend)
    if running is None or (extend is None and selected.is_finished):
        return run_here(selected, options)
    return run_by_service(selected, options, withdraw=True)


@with_run_options
def retry_failed(sweep: SweepId, server: Server = None, key: Key = None, *, options: RunOptions) -> int:
    """Run the failed trials of a sweep again in this process, each from its last checkpoint.

    Example:

        sweep retry-failed retrieval
    """
    if server is not None:
        return remote.retry_failed(server, sweep, key)
    _refuse_key(key)
    return run_here(Sweep.find(sweep, root=options.root, data=options.data), options, retry=True)


def stop(sweep: SweepId, root: Root = DEFAULT_ROOT, server: Server = None) -> None:
    """Ask a running sweep to save every trial and end, from any machine that reaches its ledger.

    Example:

        sweep stop retrieval
    """
    if server is not None:
        remote.stop(server, sweep)
        return
    selected = Sweep.find(sweep, root=root)
    driver = selected.stop()
    print_line(f"{selected.id}: {f'{driver} saves its trials and ends' if driver else 'is not started'}.")


def follow(sweep: SweepId, root: Root = DEFAULT_ROOT, plain: Plain = False, server: Server = None) -> int:
    """Show a sweep and print what its driver prints until it ends; Ctrl-C ends only the following.

    Exit codes: those of the sweep, or 5 if it still runs.

    Example:

        sweep follow retrieval
    """
    if server is not None:
        return remote.follow(server, sweep, plain=plain)
    selected = Sweep.find(sweep, root=root)
    if service.is_supervised(selected):
        return follow_submitted(selected.id, selected.workspace.paths.root, plain=plain)
    return _follow(selected, plain)


def validate(
    file: File,
    profile: Profile = None,
    overrides: Overrides = None,
    data: Data = DEFAULT_DATA,
    root: Root = DEFAULT_ROOT,
    flops: Annotated[
        bool, typer.Option("--flops", help="Count the work of a training step too: seconds a network.")
    ] = False,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Check a search-space file and print what would run, with the size of each network; nothing is written.

    Mistakes are reported at once; the sizes take seconds. With `--server`, what would run there.

    Example:

        sweep validate search_spaces/retrieval.yaml --profile laptop
    """
    if server is not None:
        there = HttpBackend.at(server).validate(file, profile=profile or "auto", overrides=overrides or ())
        if as_json:
            print_json(there)
        for line in () if as_json else _planned_there(there):
            print_line(line)
        return
    sweep = Sweep.load(
        file,
        profile=profile or "auto",
        overrides=overrides or (),
        hardware=this_machine(),
        root=root,
        data=data,
    )
    plan = sweep.plan()
    if as_json:
        cost = asdict(plan.estimate) if plan.estimate else None
        about = {
            "id": sweep.id,
            "data": _data(sweep, plan),
            "runs": plan.runs,
            "specification": sweep.specification.document(),
        }
        print_json({**about, "estimate": cost, "networks": _network_documents(sweep, flops)})
        return
    for line in (*_planned(sweep, plan), *_cost(sweep, plan), *_networks(sweep, flops)):
        print_line(line)


def run_here(sweep: Sweep, options: RunOptions, *, retry: bool = False) -> int:
    """Run or resume a sweep in this process, or in one of its own with `--detach`; return its exit code."""
    if options.detach:
        return _run_detached(sweep, options)
    console, metric = Console(soft_wrap=True), sweep.specification.metric
    display = live.observer(_reader(sweep), console, metric, quiet=options.quiet, plain=options.plain)
    with closing(display):
        if sweep.specification.scheduler.is_default:
            display.say(f"scheduler: {sweep.specification.scheduler.phrase(sweep.specification.training)}")
        code = run_notified(
            options.notify,
            sweep.id,
            metric,
            display,
            lambda observer: _run_observed(sweep, options, observer, retry=retry),
        )
    show_result(sweep, console)
    return code


def _reader(sweep: Sweep) -> live.Read:
    """Return what reads a sweep as it is now."""
    return lambda: live_sweep(sweep.id, root=sweep.workspace.paths.root)


def _run_observed(sweep: Sweep, options: RunOptions, observer: Observer, *, retry: bool) -> Exit:
    return sweep.run(
        observer,
        deadline=options.deadline,
        tracking_patience=options.tracking_patience,
        wait=options.wait,
        unless_stopped=options.unless_stopped,
        retry_failed=retry,
    )


def _run_detached(sweep: Sweep, options: RunOptions) -> int:
    """Run a sweep in a process of its own and follow it; a sweep that is running is only followed."""
    plain = options.plain or options.quiet
    if sweep.state != "NEW" and sweep.status().driver is not None:
        return _follow(sweep, plain)
    driver = following.start(sweep, ["-m", "orchestrator.sweep", *sys.argv[1:]])
    write(f"Process {driver.process.pid} drives {sweep.id}; its output goes to {driver.log}.\n")
    code = _watched(sweep, plain, driver.follow)
    if code is not None and code < 0:
        write(f"Signal {-code} ended the driver; run the same command to resume.\n")
        return Exit.RESUMABLE
    return Exit.STILL_RUNNING if code is None else code


def _follow(sweep: Sweep, plain: bool) -> int:
    status = sweep.status()
    if driver := status.driver:
        write(f"Process {driver.pid} on {driver.host} drives {sweep.id}.\n")
    lines = Display(Console(soft_wrap=True), status.metric)

    def watch(show: following.Show) -> int:
        return following.follow(sweep, show, lines if show is write else Observer())

    code = _watched(sweep, plain, watch)
    return Exit.STILL_RUNNING if code is None else code


def _watched(sweep: Sweep, plain: bool, watch: Callable[[following.Show], int]) -> int | None:
    """Return what `watch` returns, or None if Ctrl-C ended it; on a terminal show the sweep meanwhile."""

    def watch_live() -> int:
        with live.shown_live(_reader(sweep), plain=plain) as show:
            return watch(show or write)

    return until_interrupted(sweep.id, watch_live)


def _extended(sweep: Sweep, extend: str | None) -> Sweep:
    return sweep if extend is None else sweep.extend(**_budget(extend))


def _budget(extend: str | None) -> dict[str, str]:
    """Return what `--extend` changes of the budget, by its key."""
    if extend is None:
        return {}
    name, equals, value = extend.partition("=")
    if not equals or not name.isidentifier():
        raise BadInput("--extend", "must be KEY=VALUE", repr(extend), "For example --extend trials=128.")
    return {name: value}


def _refuse_key(key: str | None) -> None:
    if key is not None:
        remedy = "Leave it out: on this machine the same command only continues the sweep."
        raise BadInput("--key", "must be given with --server", key, remedy)


def _planned(sweep: Sweep, plan: Plan) -> list[str]:
    what, training = sweep.specification, sweep.specification.training
    return [
        f"{sweep.id}: valid",
        f"data: {_data(sweep, plan)}",
        *(f"{'  ' if number else 'runs: '}{line}" for number, line in enumerate(plan.runs)),
        *([] if plan.requires is None else [f"an answer requires: {plan.requires}"]),
        f"trials: {what.budget.trials} of {training.steps} steps, a report every {training.interval}",
        f"objective: {what.direction} {what.metric}",
        f"sampler: {what.sampler.name}; scheduler: {what.scheduler.phrase(training)}",
        f"resources: {what.resources.cpu:g} CPU and {what.resources.gpu:g} GPU a trial;"
        f" this machine has {plan.hardware.cpus} and {plan.hardware.gpus}",
        *([] if plan.matched is None else [f"match: {plan.matched}"]),
        *_registered(sweep),
        "space:",
        *(f"  {name}: {distribution.document()}" for name, distribution in what.search.items()),
    ]


def _planned_there(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield what would run at a service, as its API tells it."""
    yield f"{plan['id']}: valid"
    yield f"data: {plan['data'] or 'loaded by the trainable'}"
    steps = "" if plan["steps"] is None else f" of {plan['steps']} steps"
    yield f"trials: {plan['trials']}{steps}, {plan['at_once']} at once"
    yield f"objective: {plan['direction']} {plan['metric']}"
    if plan["match"] is not None:
        yield f"match: {plan['match']}"
    if plan["seconds"] is not None:
        yield f"time: {plan['seconds']:.0f} s a trial"
    for network in plan["networks"] or ():
        yield f"size: {_network(ModelSettings(**network['model']))}: {size(Cost.from_document(network))}"


def _registered(sweep: Sweep) -> list[str]:
    """Return why no model will be registered, if that is so."""
    trainable = sweep.specification.trainable
    why = None if trainable is None else trainable.why_not_registered()
    return [] if why is None else [f"registered model: none, because {why}"]


def _data(sweep: Sweep, plan: Plan) -> str:
    return f"loaded by {sweep.specification.subject}" if plan.source is None else plan.source.phrase


def _networks(sweep: Sweep, flops: bool) -> Iterator[str]:
    """Yield the size of each network, or why it is not known; a trainable has none of this package."""
    if sweep.specification.trainable is not None:
        return
    try:
        networks = sweep.networks(work=flops)
    except Refusal as refusal:
        yield f"size: unknown; {refusal}"
        return
    yield "size:"
    for network in networks:
        yield f"  {_network(network.model)}: {size(network.cost)}"


def _network(model: ModelSettings) -> str:
    declared = LAYERS.settings(model.layer).options
    options = "".join(
        f", {name} {value}" for name, value in model.options.items() if value != declared[name].default
    )
    both = ", bidirectional" if model.bidirectional else ""
    sizes = f"depth {model.depth}, d_model {model.d_model}, d_state {model.d_state}"
    return f"{model.layer}, {sizes}{options}{both}"


def _network_documents(sweep: Sweep, flops: bool) -> list[dict[str, Any]] | None:
    """Return each network with its size, or None if the sizes are not known."""
    try:
        networks = sweep.networks(work=flops)
    except Refusal:
        return None
    return [{"model": asdict(network.model), **network.cost.document()} for network in networks]


def _cost(sweep: Sweep, plan: Plan) -> Iterator[str]:
    what, cost = sweep.specification, plan.estimate
    if cost is None:
        yield "time and memory: unknown, no sweep in this ledger has run the same program"
        return
    trials = what.budget.trials + what.confirm.seeds
    most = cost.seconds * trials / max(plan.at_once, 1)
    yield (
        f"time: {cost.seconds:.0f} s a trial, at most {most / 60:.0f} min for {trials} of them,"
        f" {plan.at_once} at once, compilation left out (measured in {cost.source})"
    )
    interval = cost.seconds * what.training.interval / what.training.steps
    if what.budget.hours is not None and 3600 * what.budget.hours < interval:
        yield f"warning: budget.hours ends before the first report, which takes {interval:.0f} s"
    yield f"memory: {cost.bytes / 1e6:.1f} MB a trial for weights and optimiser; activations not counted"
