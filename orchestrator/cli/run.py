"""The verbs that run a sweep: `run`, `resume`, `retry-failed`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.cli.follow import Detach, run_detached
from orchestrator.cli.found import sweep_named
from orchestrator.cli.notify import Notified, Notifier
from orchestrator.cli.options import DEFAULT_DATA, DEFAULT_ROOT, Data, Patience, Root, SweepId, paths
from orchestrator.cli.progress import Watch
from orchestrator.config import from_document, load
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import admission, preflight
from orchestrator.driver.admission import Run
from orchestrator.driver.run import drive
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import SweepRecord
from orchestrator.machines import hardware
from orchestrator.storage.paths import Paths

Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result alone.")]
Deadline = Annotated[
    float, typer.Option(help="Seconds a running trial may stay silent before it is killed and retried.")
]
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        envvar="SWEEP_WAIT",
        help="How long to wait while no node has room for a trial; 10, on a cluster 3600.",
    ),
]
Notify = Annotated[
    str | None,
    typer.Option(
        envvar="SWEEP_NOTIFY",
        metavar="COMMAND|URL",
        help="Gets JSON at a new best, a failure, the end: a command on its standard input, a URL as POST.",
    ),
]
Extend = Annotated[
    str | None,
    typer.Option(metavar="KEY=VALUE", help="Go on beyond the budget: `--extend trials=128`."),
]


@dataclass(frozen=True)
class _Place:
    """Where a command runs a sweep, and how it shows it."""

    paths: Paths
    data: Path
    hardware: hardware.Hardware
    quiet: bool
    notify: str | None
    deadline: float
    patience: float
    wait: float | None


def run(
    file: Annotated[Path, typer.Argument(help="A search-space file, such as search_spaces/retrieval.yaml.")],
    profile: Annotated[
        str | None,
        typer.Option(help="A profile of the file; `full` for none. Without a GPU: `laptop`."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one key: `--set training.steps=1000`."),
    ] = None,
    extend: Extend = None,
    new: Annotated[bool, typer.Option("--new", help="Start another sweep of the same file.")] = False,
    data: Data = DEFAULT_DATA,
    root: Root = DEFAULT_ROOT,
    deadline: Deadline = 600.0,
    patience: Patience = 60.0,
    wait: Wait = None,
    quiet: Quiet = False,
    notify: Notify = None,
    detach: Detach = False,
) -> int:
    """Run the sweep of FILE, or resume it where it stopped.

    Exit codes: 0 complete, 2 bad input, 3 some trials failed, 4 interrupted and resumable.
    """
    here = preflight.available_hardware(paths(root))
    wanted = [*(overrides or ()), *_extension(extend)]
    sweep = load(file, profile=profile or "auto", overrides=tuple(wanted), gpus=here.gpus)
    if profile is None:
        hardware.require_gpu_jax(here)
    if detach:
        preflight.check_sweep(sweep, here, data)
        return run_detached(sys.argv[1:], _identified(sweep, paths(root), new=new), paths(root))
    place = _Place(paths(root), data, here, quiet, notify, deadline, patience, wait)
    why = here.phrase if profile is None else "asked for"
    return _go(sweep, place, why, new=new)


def resume(
    sweep: SweepId,
    extend: Extend = None,
    data: Data = DEFAULT_DATA,
    root: Root = DEFAULT_ROOT,
    deadline: Deadline = 600.0,
    patience: Patience = 60.0,
    wait: Wait = None,
    quiet: Quiet = False,
    notify: Notify = None,
    detach: Detach = False,
) -> int:
    """Go on with a sweep of the ledger, without its file."""
    place = _Place(
        paths(root),
        data,
        preflight.available_hardware(paths(root)),
        quiet,
        notify,
        deadline,
        patience,
        wait,
    )
    record = sweep_named(Ledger.open(place.paths.ledger_url), sweep)
    if detach:
        return run_detached(sys.argv[1:], record.id, place.paths)
    return _go(_stored(record, extend), place, "as it began", known=record.id)


def retry_failed(
    sweep: SweepId,
    data: Data = DEFAULT_DATA,
    root: Root = DEFAULT_ROOT,
    deadline: Deadline = 600.0,
    patience: Patience = 60.0,
    wait: Wait = None,
    quiet: Quiet = False,
    notify: Notify = None,
    detach: Detach = False,
) -> int:
    """Run the failed trials of a sweep once more, each from its last checkpoint."""
    place = _Place(
        paths(root),
        data,
        preflight.available_hardware(paths(root)),
        quiet,
        notify,
        deadline,
        patience,
        wait,
    )
    ledger = Ledger.open(place.paths.ledger_url)
    record = sweep_named(ledger, sweep)
    failed = [trial.key for trial in ledger.trials(record.id) if trial.state == "FAILED"]
    if not failed:
        raise BadInput(record.id, "must have failed trials to retry", "none", "`show` tells of each trial.")
    if detach:
        return run_detached(sys.argv[1:], record.id, place.paths)
    return _go(_stored(record, None), place, "as it began", known=record.id, reopen=failed)


def _go(
    sweep: SweepConfig,
    place: _Place,
    why: str,
    *,
    known: str | None = None,
    new: bool = False,
    reopen: Sequence[str] = (),
) -> int:
    preflight.check_sweep(sweep, place.hardware, place.data)
    watch = Watch(Console(soft_wrap=True), sweep.metric, place.quiet)
    if sweep.profile:
        watch.say(f"Profile `{sweep.profile}` ({why}): smaller than the paper's; `--profile full` insists.")
    notifier = Notifier(place.notify, watch.say) if place.notify is not None else None
    watcher = Notified(watch, notifier, sweep.metric) if notifier else watch
    begun = Run(
        place.paths,
        place.data,
        place.hardware,
        known,
        new,
        tuple(reopen),
        deadline=place.deadline,
        tracking_patience=place.patience,
        wait=preflight.node_wait(place.wait),
    )
    sweep_id, code = drive(sweep, begun, watcher)
    if notifier:
        notifier.tell({"event": "ended", "sweep": sweep_id, "exit": int(code), "result": code.name.lower()})
        notifier.close()
    # Plotly and Optuna take seconds to import: not before everything that can be refused has been.
    from orchestrator.report import report

    report.show(sweep_id, place.paths, watch.console)
    return int(code)


def _identified(sweep: SweepConfig, where: Paths, *, new: bool) -> str:
    """Return the id under which a driver that starts now would run a sweep."""
    preflight.check_paths(where)
    where.create()
    with closing(Ledger.open(where.ledger_url)) as ledger:
        return admission.identify(sweep, ledger, new=new).id


def _stored(record: SweepRecord, extend: str | None) -> SweepConfig:
    text = str(record.facts.get("specification", ""))
    return from_document(record.document, text, _extension(extend))


def _extension(extend: str | None) -> list[str]:
    return [f"budget.{extend}"] if extend else []
