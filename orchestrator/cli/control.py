"""The verbs `stop`, `check`, `recover` and `validate`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.cli.found import sweep_named
from orchestrator.cli.options import (
    DEFAULT_DATA,
    DEFAULT_ROOT,
    Data,
    Json,
    Patience,
    Root,
    SweepId,
    opened,
    paths,
)
from orchestrator.config import load
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import preflight
from orchestrator.driver.preflight import Estimate, estimate, phrases
from orchestrator.errors import BadInput
from orchestrator.exits import Exit
from orchestrator.ledger.lease import holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import SweepRecord
from orchestrator.ledger.stop_requests import ask_to_stop
from orchestrator.machines import hardware
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from orchestrator.tracking.address import sqlite_path
from orchestrator.upkeep.check import Finding
from orchestrator.upkeep.check import check as findings_of
from orchestrator.upkeep.mlflow_agreement import disagreements
from orchestrator.upkeep.recovery import recover
from orchestrator.upkeep.redelivery import retell, set_aside


def stop(
    sweep: SweepId,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Ask a running sweep to save every trial and leave, from wherever its ledger is reached."""
    ledger = opened(root)
    record = sweep_named(ledger, sweep)
    driving = holder(ledger, record.id)
    if driving is None:
        raise BadInput(record.id, "must be running to be stopped", record.state, "`status` shows what runs.")
    ask_to_stop(ledger, record.id)
    Console().print(f"{record.id}: process {driving.pid} on {driving.host} saves its trials and leaves.")


def check(
    sweep: Annotated[
        str | None, typer.Argument(help="A sweep's id or its beginning; all if left out.")
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> int:
    """Check that ledger, checkpoints, leases and MLflow agree; exit code 1 and a line a finding if not."""
    ledger, where = opened(root), paths(root)
    records = [sweep_named(ledger, sweep)] if sweep else ledger.sweeps()
    console = Console(soft_wrap=True, highlight=False)
    found = [each for record in records for each in _found(ledger, record, where)]
    if as_json:
        told = {"sweeps": [record.id for record in records], "findings": [asdict(each) for each in found]}
        console.print_json(json.dumps(told))
        return Exit.FINDINGS if found else Exit.COMPLETE
    for finding in found:
        console.print(f"{finding.where}: {finding.problem}", markup=False)
    console.print(f"{len(records)} sweeps checked, {len(found)} findings")
    return Exit.FINDINGS if found else Exit.COMPLETE


def _found(ledger: Ledger, record: SweepRecord, where: Paths) -> Iterator[Finding]:
    at_hand = partial(store.at_hand, where, record.id)
    yield from findings_of(ledger, record.id, where.checkpoints(record.id), at_hand)
    if database := sqlite_path(where.tracking_uri):
        yield from disagreements(ledger, record, Path(database))


def recover_ledger(
    mlflow: Annotated[
        bool,
        typer.Option("--mlflow", help="Not the ledger: tell an MLflow that has lost it everything again."),
    ] = False,
    patience: Patience = 600.0,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Rebuild a damaged ledger from its backup, to the last commit; the damaged file is kept aside."""
    console = Console(soft_wrap=True, highlight=False)
    if mlflow:
        return _retold(console, opened(root), paths(root), patience)
    done = recover(paths(root).ledger_url)
    for sweep_id, commits in done.commits.items():
        lost = done.lost.get(sweep_id, 0)
        console.print(f"{sweep_id}: {commits} commits recovered, {lost} lost", markup=False)
    console.print(f"the damaged ledger is kept as {done.damaged}", markup=False)
    return Exit.COMPLETE


def _retold(console: Console, ledger: Ledger, where: Paths, seconds: float) -> int:
    if aside := set_aside(where):
        console.print(f"the damaged database of MLflow is kept as {aside}", markup=False)
    waiting = 0
    for record in ledger.sweeps():
        told, left = retell(ledger, record.id, where, seconds)
        waiting += left
        console.print(f"{record.id}: {told} records, {left} of them still wait for MLflow", markup=False)
    return Exit.RESUMABLE if waiting else Exit.COMPLETE


def validate(
    file: Annotated[Path, typer.Argument(help="A search-space file.")],
    profile: Annotated[str | None, typer.Option(help="A profile of the file; `full` for none.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one key.")
    ] = None,
    data: Data = DEFAULT_DATA,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Check a file and say what would run; starts nothing and writes nothing."""
    here = hardware.detect()
    sweep = load(file, profile=profile or "auto", overrides=tuple(overrides or ()), gpus=here.gpus)
    source = preflight.check_sweep(sweep, here, data)
    console, taken = Console(soft_wrap=True, highlight=False), _taken(sweep, paths(root))
    if as_json:
        told = {"id": sweep.id, "data": source.phrase, "specification": sweep.document()}
        console.print_json(json.dumps({**told, "estimate": asdict(taken) if taken else None}))
        return
    for line in (*_plan(sweep, source.phrase, here), *phrases(sweep, taken, _at_once(sweep, here))):
        console.print(line, markup=False)


def _taken(sweep: SweepConfig, where: Paths) -> Estimate | None:
    """Return what a trial takes, as far as there is a ledger that knows."""
    if where.database is None and not (where.root / "sweeps.db").exists():
        return None
    with closing(Ledger.open(where.ledger_url, create=False)) as ledger:
        return estimate(sweep, ledger)


def _at_once(sweep: SweepConfig, here: hardware.Hardware) -> int:
    asked = sweep.resources
    fits = min(n / a for n, a in ((here.cpus, asked.cpu), (here.gpus, asked.gpu)) if a)
    return min(int(fits + 1e-6), asked.concurrent or sweep.budget.trials, sweep.budget.trials)


def _plan(sweep: SweepConfig, source: str, here: hardware.Hardware) -> list[str]:
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
