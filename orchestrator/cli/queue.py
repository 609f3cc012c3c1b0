"""The verbs about sweeps that share a cluster: `queue`, `move`, `quota`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from orchestrator.api import queue as api
from orchestrator.api.workspace import DEFAULT_ROOT
from orchestrator.cli import remote
from orchestrator.cli.display import print_json, print_line
from orchestrator.cli.options import Json, Root, SweepId
from orchestrator.cli.remote import Server
from orchestrator.sharing.rows import UNIT


def queue(root: Root = DEFAULT_ROOT, as_json: Json = False, server: Server = None) -> None:
    """Show how the running sweeps share their cluster: share, running trials, position, why one waits.

    Example:

        sweep queue
    """
    if server is not None:
        remote.queue(server, as_json=as_json)
        return
    entries = api.queue(root=root)
    if as_json:
        print_json([entry.document() for entry in entries])
        return
    if not entries:
        print_line("No sweep runs or waits for the service.")
        return
    table = Table(
        Column("position", justify="right"),
        Column("sweep", no_wrap=True),
        "owner",
        "class",
        Column("share", justify="right"),
        Column("running", justify="right"),
        Column("wanted", justify="right"),
        "why it waits",
        box=None,
    )
    for entry in entries:
        position = str(entry.position) if entry.position else ""
        amounts = (str(entry.share), str(entry.running), str(entry.wanted))
        table.add_row(position, entry.sweep, entry.owner, entry.priority_class, *amounts, entry.why or "")
    Console().print(table)


def move(
    sweep: SweepId,
    priority_class: Annotated[str, typer.Argument(metavar="CLASS", help="One of urgent, normal, idle.")],
    weight: Annotated[float, typer.Option("--weight", help="Among the owner's sweeps.")] = 1.0,
    root: Root = DEFAULT_ROOT,
    server: Server = None,
) -> None:
    """Move a sweep to another class: `urgent` goes ahead of the others, `idle` takes what they leave.

    Example:

        sweep move listops idle
    """
    if server is not None:
        remote.move(server, sweep, priority_class, weight)
        return
    sweep_id, moved = api.move(sweep, priority_class, weight=weight, root=root)
    print_line(f"{sweep_id}: class {moved}, weight {weight:g}")


def quota(
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="In whose name sweeps run.")],
    weight: Annotated[float | None, typer.Option("--weight", help="Relative to other owners.")] = None,
    share: Annotated[
        float | None, typer.Option("--share", help="Largest part of a cluster at once, from 0 to 1.")
    ] = None,
    gpu_hours: Annotated[
        float | None, typer.Option("--gpu-hours", help="GPU-hours a week; `inf` for no limit.")
    ] = None,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Show the weight and the quotas of an owner, and change those that are given.

    Example:

        sweep quota ada --weight 2 --share 0.5 --gpu-hours 100
    """
    row = api.quota(owner, weight=weight, share=share, gpu_hours=gpu_hours, root=root)
    hours = "no limit of" if row.most_gpu_hours is None else f"{row.most_gpu_hours:g}"
    used = f"{row.week_gpu_seconds / 3600:.1f} used"
    quotas = f"at most {row.most_share / UNIT:.0%} of a cluster, {hours} GPU-hours a week ({used})"
    print_line(f"{row.name}: weight {row.weight / UNIT:g}, {quotas}")
