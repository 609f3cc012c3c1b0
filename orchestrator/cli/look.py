"""The verbs that read the ledger alone: `list`, `status`; they import no other part of the service."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.api.live import live
from orchestrator.client.answers import DetailedStatus
from orchestrator.api.status import sweeps
from orchestrator.api.status import status as status_of
from orchestrator.api.workspace import DEFAULT_ROOT
from orchestrator.cli import remote
from orchestrator.cli.display import delivered_by, print_json, print_line, waiting
from orchestrator.cli.listing import ListedSweep, print_sweeps
from orchestrator.cli.live import shown_live
from orchestrator.cli.options import Json, Plain, Root
from orchestrator.cli.remote import Server
from orchestrator.counts import counted
from orchestrator.driver.log import describe
from orchestrator.output import Console

_LOOK_SECONDS = 2.0


def list_sweeps(root: Root = DEFAULT_ROOT, as_json: Json = False, server: Server = None) -> None:
    """List every sweep with its state, its task and its trials by state.

    Example:

        sweep list
    """
    if server is not None:
        remote.list_sweeps(server, as_json=as_json)
        return
    listed = sweeps(root=root)
    if as_json:
        print_json([entry.document() for entry in listed])
        return
    print_sweeps(
        [
            ListedSweep(entry.id, entry.state, None, entry.task, entry.trials, entry.created_at)
            for entry in listed
        ]
    )
    for entry in listed:
        if entry.reason and entry.state in ("PARKED", "FAILED", "PAUSED"):
            print_line(f"{entry.id}: {entry.state}, because: {entry.reason}")
        if entry.waiting_for_mlflow and entry.driver is None:
            print_line(f"{entry.id}: {waiting(entry.waiting_for_mlflow, delivered_by(entry.id))}")


def status(
    sweep: Annotated[
        str | None,
        typer.Argument(metavar="[SWEEP]", help="Id of a sweep, or its beginning; the newest if left out."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it until no process drives the sweep.")
    ] = False,
    plain: Plain = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Show the state of a sweep: its driver, its trials by state, the best trial so far.

    Example:

        sweep status retrieval --watch
    """
    if server is not None:
        remote.status(server, sweep, watch=watch, plain=plain, as_json=as_json)
        return
    if watch and not as_json:
        sweep = _watch_live(sweep, root, plain=plain)
    while True:
        now = status_of(sweep, root=root)
        if as_json:
            print_json(now.document())
        else:
            _print_status(now)
        if not watch or now.driver is None:
            return
        sweep = now.id
        time.sleep(_LOOK_SECONDS)


def _watch_live(sweep: str | None, root: Path, *, plain: bool) -> str:
    """On a terminal, show a sweep until no process drives it; return its id."""
    now = status_of(sweep, root=root)
    with shown_live(lambda: live(now.id, root=root), plain=plain) as show:
        while show is not None and status_of(now.id, root=root).driver is not None:
            time.sleep(_LOOK_SECONDS)
    return now.id


def _print_status(now: DetailedStatus) -> None:
    console = Console(soft_wrap=True, highlight=False)
    reason = f" ({now.reason})" if now.reason else ""
    console.print(f"{now.id}: {now.state}{reason}", markup=False)
    if now.driver:
        console.print(f"  driven by {now.driver}", markup=False)
    progress = replace(now.progress, reason=None)  # the first line gives it
    console.print("  " + describe(progress, now.metric), markup=False)
    for cause, count in now.failures.items():
        console.print(f"  failed {counted(count, 'time')}: {cause}", markup=False)
    if now.waiting_for_mlflow:
        how = "its driver delivers them" if now.driver else delivered_by(now.id)
        console.print(f"  {waiting(now.waiting_for_mlflow, how)}", markup=False)
    if not now.driver and now.state == "INTERRUPTED":
        console.print(f"  resume it with: python -m orchestrator.sweep resume {now.id}")
