"""The verbs `stop`, `check`, `recover` and `validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestrator import admission, hardware
from orchestrator.cli.found import sweep_named
from orchestrator.cli.options import DEFAULT_DATA, DEFAULT_ROOT, Data, Root, opened, paths
from orchestrator.errors import BadInput
from orchestrator.exits import Exit
from orchestrator.ledger.check import check as findings_of
from orchestrator.ledger.lease import holder
from orchestrator.ledger.recovery import recover
from orchestrator.spec import load
from orchestrator.spec.model import Sweep


def stop(
    sweep: Annotated[str, typer.Argument(help="A sweep's id, or the beginning of it.")],
    root: Root = DEFAULT_ROOT,
) -> None:
    """Ask a running sweep, from any terminal, to save every trial and leave; it can be resumed."""
    ledger = opened(root)
    record = sweep_named(ledger, sweep)
    driving = holder(ledger, record.id)
    if driving is None:
        raise BadInput(record.id, "must be running to be stopped", record.state, "`status` shows what runs.")
    wish = paths(root).stop_wish(record.id)
    wish.parent.mkdir(parents=True, exist_ok=True)
    wish.touch()
    Console().print(f"{record.id}: process {driving.pid} on {driving.host} saves its trials and leaves.")


def check(
    sweep: Annotated[
        str | None, typer.Argument(help="A sweep's id or its beginning; all if left out.")
    ] = None,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Check that ledger, checkpoints and leases agree; exit code 1 and a line for each finding if not."""
    ledger, where = opened(root), paths(root)
    records = [sweep_named(ledger, sweep)] if sweep else ledger.sweeps()
    console = Console(soft_wrap=True, highlight=False)
    found = 0
    for record in records:
        for finding in findings_of(ledger, record.id, where.checkpoints(record.id)):
            console.print(f"{finding.where}: {finding.problem}", markup=False)
            found += 1
    console.print(f"{len(records)} sweeps checked, {found} findings")
    return Exit.FINDINGS if found else Exit.COMPLETE


def recover_ledger(root: Root = DEFAULT_ROOT) -> None:
    """Rebuild a damaged ledger from its backup, to the last commit; the damaged file is kept aside."""
    done = recover(paths(root).ledger_url)
    console = Console(soft_wrap=True, highlight=False)
    for sweep_id, commits in done.commits.items():
        lost = done.lost.get(sweep_id, 0)
        console.print(f"{sweep_id}: {commits} commits recovered, {lost} lost", markup=False)
    console.print(f"the damaged ledger is kept as {done.damaged}", markup=False)


def validate(
    file: Annotated[Path, typer.Argument(help="A search-space file.")],
    profile: Annotated[str | None, typer.Option(help="A profile of the file; `full` for none.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one key.")
    ] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Check a file and say what would run; starts nothing and writes nothing."""
    here = hardware.detect()
    sweep = load(file, profile=profile or "auto", overrides=tuple(overrides or ()), gpus=here.gpus)
    source = admission.check(sweep, here, data)
    console = Console(soft_wrap=True, highlight=False)
    for line in _plan(sweep, source.phrase, here):
        console.print(line, markup=False)


def _plan(sweep: Sweep, source: str, here: hardware.Hardware) -> list[str]:
    steps, interval = sweep.training.steps, sweep.training.interval
    space = [f"  {name}: {distribution.document()}" for name, distribution in sweep.search.items()]
    return [
        f"{sweep.id}: valid",
        f"data: {source}",
        f"trials: {sweep.budget.trials} of {steps} steps, a report every {interval}",
        f"objective: {sweep.direction} {sweep.metric}",
        f"sampler: {sweep.sampler.name}; scheduler: {sweep.scheduler.name}",
        f"resources: {sweep.resources.cpu:g} CPU and {sweep.resources.gpu:g} GPU a trial;"
        f" this machine has {here.cpus} and {here.gpus}",
        "space:",
        *space,
    ]
