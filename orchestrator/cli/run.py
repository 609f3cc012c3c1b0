"""The verbs that run, resume and stop a sweep, and those that follow one or check a file before it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console

from orchestrator import Observer
from orchestrator.api import following
from orchestrator.api.cluster import available, this_machine
from orchestrator.api.following import DETACH
from orchestrator.api.sweep import DEADLINE_SECONDS, TRACKING_SECONDS, Plan, Sweep
from orchestrator.api.workspace import DEFAULT_DATA, DEFAULT_ROOT
from orchestrator.cli.display import Display, print_json, print_line
from orchestrator.cli.notify import Notified, Notifier, ended
from orchestrator.cli.options import EXECUTION, Data, Json, Root, SweepId, TrackingPatience
from orchestrator.cli.results import show_result
from orchestrator.errors import BadInput, Exit, Refusal, exit_of

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="A search-space file, such as search_spaces/retrieval.yaml."),
]
Extend = Annotated[
    str | None,
    typer.Option("--extend", metavar="KEY=VALUE", help="Change the budget, such as `trials=128`."),
]
Profile = Annotated[
    str | None,
    typer.Option(help="A profile of the file; `full` for none. If left out, `laptop` where there is no GPU."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the file, such as `training.steps=1000`; may be given several times.",
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """The options of every verb that runs a sweep; each field is an option."""

    data: Data = DEFAULT_DATA
    root: Root = DEFAULT_ROOT
    deadline: Annotated[
        float,
        typer.Option(
            "--deadline",
            metavar="SECONDS",
            help="How long a running trial may stay silent before it is killed and retried.",
            rich_help_panel=EXECUTION,
        ),
    ] = DEADLINE_SECONDS
    tracking_patience: TrackingPatience = TRACKING_SECONDS
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            envvar="SWEEP_WAIT",
            help="How long to wait while no node has room for a trial. If left out, 10, on a cluster 3600.",
            rich_help_panel=EXECUTION,
        ),
    ] = None
    unless_stopped: Annotated[
        bool,
        typer.Option(
            "--unless-stopped",
            envvar="SWEEP_UNLESS_STOPPED",
            help="End at once if `stop` has ended the sweep: for a start by a batch system.",
            rich_help_panel=EXECUTION,
        ),
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print the result alone.", rich_help_panel=EXECUTION)
    ] = False
    notify: Annotated[
        str | None,
        typer.Option(
            "--notify",
            envvar="SWEEP_NOTIFY",
            metavar="COMMAND|URL",
            help="Receives JSON at a new best trial, at a failure and at the end: a command on its standard"
            " input, a URL by POST.",
            rich_help_panel=EXECUTION,
        ),
    ] = None
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            envvar=DETACH,
            help="Run the sweep in a process of its own and follow it: closing the terminal ends only the"
            " following.",
            rich_help_panel=EXECUTION,
        ),
    ] = False


def with_run_options(verb: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options of `RunOptions`, and call it with `options`, the object that they make.

    Typer reads the parameters of a verb from its signature, so the fields are put into the signature.
    """
    given_to_verb = signature(verb, eval_str=True).parameters
    own = [parameter for name, parameter in given_to_verb.items() if name != "options"]
    kinds = get_type_hints(RunOptions, include_extras=True)
    shared = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=kinds[field.name])
        for field in fields(RunOptions)
    ]

    @wraps(verb)
    def command(**given: Any) -> int:
        options = RunOptions(**{parameter.name: given.pop(parameter.name) for parameter in shared})
        return verb(**given, options=options)

    parameters = [*own, *shared]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


@with_run_options
def run(
    file: File,
    profile: Profile = None,
    overrides: Overrides = None,
    extend: Extend = None,
    new: Annotated[bool, typer.Option("--new", help="Start another sweep of the same file.")] = False,
    *,
    options: RunOptions,
) -> int:
    """Run the sweep of a search-space file, or resume it where it stopped.

    Exit codes: 0 complete, 2 bad input, 3 some trials failed, 4 interrupted and resumable,
    6 another driver runs the sweep.

    Example:

        sweep run search_spaces/listops.yaml --set budget.trials=4
    """
    sweep = Sweep.load(
        file,
        profile=profile or "auto",
        overrides=overrides or (),
        new=new,
        hardware=available(root=options.root),
        root=options.root,
        data=options.data,
    )
    return _run(_extended(sweep, extend), options)


@with_run_options
def resume(sweep: SweepId, extend: Extend = None, *, options: RunOptions) -> int:
    """Resume a sweep from the ledger, without its file.

    Example:

        sweep resume retrieval --extend trials=128
    """
    selected = Sweep.find(sweep, root=options.root, data=options.data)
    return _run(_extended(selected, extend), options)


@with_run_options
def retry_failed(sweep: SweepId, *, options: RunOptions) -> int:
    """Run the failed trials of a sweep again, each from its last checkpoint.

    Example:

        sweep retry-failed retrieval
    """
    return _run(Sweep.find(sweep, root=options.root, data=options.data), options, retry=True)


def stop(sweep: SweepId, root: Root = DEFAULT_ROOT) -> None:
    """Ask a running sweep to save every trial and end, from any machine that reaches its ledger.

    Example:

        sweep stop retrieval
    """
    selected = Sweep.find(sweep, root=root)
    print_line(f"{selected.id}: {selected.stop()} saves its trials and ends.")


def follow(sweep: SweepId, root: Root = DEFAULT_ROOT) -> int:
    """Print what the driver of a sweep prints until it ends; Ctrl-C ends only the following.

    Exit codes: those of the sweep, or 5 if it still runs.

    Example:

        sweep follow retrieval
    """
    return _follow(Sweep.find(sweep, root=root))


def validate(
    file: File,
    profile: Profile = None,
    overrides: Overrides = None,
    data: Data = DEFAULT_DATA,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Check a search-space file and print what would run; nothing is started or written.

    Example:

        sweep validate search_spaces/retrieval.yaml --profile laptop
    """
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
        about = {"id": sweep.id, "data": plan.source.phrase, "specification": sweep.specification.document()}
        print_json({**about, "estimate": cost})
        return
    for line in (*_planned(sweep, plan), *_cost(sweep, plan)):
        print_line(line)


def _run(sweep: Sweep, options: RunOptions, *, retry: bool = False) -> int:
    if options.detach:
        return _run_detached(sweep)
    display = Display(Console(soft_wrap=True), sweep.specification.metric, options.quiet)
    if options.notify is None:
        code = _run_observed(sweep, options, display, retry=retry)
    else:
        with closing(Notifier(options.notify, display.say)) as notifier:
            observer = Notified(display, notifier, display.metric)
            try:
                code = _run_observed(sweep, options, observer, retry=retry)
            except Refusal as refusal:
                notifier.send(ended(sweep.id, exit_of(refusal)))
                raise
            notifier.send(ended(sweep.id, code))
    show_result(sweep, display.console)
    return code


def _run_observed(sweep: Sweep, options: RunOptions, observer: Observer, *, retry: bool) -> Exit:
    return sweep.run(
        observer,
        deadline=options.deadline,
        tracking_patience=options.tracking_patience,
        wait=options.wait,
        unless_stopped=options.unless_stopped,
        retry_failed=retry,
    )


def _run_detached(sweep: Sweep) -> int:
    """Run a sweep in a process of its own and follow it; a sweep that is running is only followed."""
    if sweep.state != "NEW" and sweep.status().driver is not None:
        return _follow(sweep)
    driver = following.start(sweep, sys.argv[1:])
    _write(f"Process {driver.process.pid} drives {sweep.id}; its output goes to {driver.log}.\n")
    code = _until_interrupted(sweep, lambda: driver.follow(_write))
    if code is not None and code < 0:
        _write(f"Signal {-code} ended the driver; run the same command to resume.\n")
        return Exit.RESUMABLE
    return Exit.STILL_RUNNING if code is None else code


def _follow(sweep: Sweep) -> int:
    status = sweep.status()
    if driver := status.driver:
        _write(f"Process {driver.pid} on {driver.host} drives {sweep.id}.\n")
    display = Display(Console(soft_wrap=True), status.metric)
    code = _until_interrupted(sweep, lambda: following.follow(sweep, _write, display))
    return Exit.STILL_RUNNING if code is None else code


def _until_interrupted(sweep: Sweep, watch: Callable[[], int]) -> int | None:
    """Return what `watch` returns, or None if Ctrl-C ended it."""
    try:
        return watch()
    except KeyboardInterrupt:
        _write(f"{sweep.id} is still running; `follow {sweep.id}` shows it, `stop {sweep.id}` ends it.\n")
        return None


def _extended(sweep: Sweep, extend: str | None) -> Sweep:
    if extend is None:
        return sweep
    name, equals, value = extend.partition("=")
    if not equals or not name.isidentifier():
        raise BadInput("--extend", "must be KEY=VALUE", repr(extend), "For example --extend trials=128.")
    return sweep.extend(**{name: value})


def _planned(sweep: Sweep, plan: Plan) -> list[str]:
    what, training = sweep.specification, sweep.specification.training
    return [
        f"{sweep.id}: valid",
        f"data: {plan.source.phrase}",
        f"trials: {what.budget.trials} of {training.steps} steps, a report every {training.interval}",
        f"objective: {what.direction} {what.metric}",
        f"sampler: {what.sampler.name}; scheduler: {what.scheduler.name}",
        f"resources: {what.resources.cpu:g} CPU and {what.resources.gpu:g} GPU a trial;"
        f" this machine has {plan.hardware.cpus} and {plan.hardware.gpus}",
        "space:",
        *(f"  {name}: {distribution.document()}" for name, distribution in what.search.items()),
    ]


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


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
