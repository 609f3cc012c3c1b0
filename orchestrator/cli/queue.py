"""The verbs about sweeps that share a cluster: `queue`, `move`, `quota`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from textwrap import wrap
from typing import Annotated

import typer

from orchestrator.api import queue as api
from orchestrator.client.answers import QueuedSweep
from orchestrator.api.workspace import DEFAULT_ROOT
from orchestrator.cli import remote
from orchestrator.cli.display import print_json, print_line
from orchestrator.cli.options import Json, Root, SweepId
from orchestrator.cli.remote import Server
from orchestrator.counts import counted
from orchestrator.output import Console
from orchestrator.report.words import duration
from orchestrator.sharing.rows import UNIT

_HEADER = ("", "owner", "class", "share", "running", "wanted", "starts")
_OWNER = 16
_INDENT = " " * 6


def queue(root: Root = DEFAULT_ROOT, as_json: Json = False, server: Server = None) -> None:
    """Show who runs and who waits: position, share, running trials, expected start, and why one waits.

    Example:

        sweep queue
    """
    if server is not None:
        entries = [QueuedSweep.of(entry) for entry in remote.queue(server)]
    else:
        entries = list(api.queue(root=root))
    if as_json:
        print_json([entry.document() for entry in entries])
        return
    if not entries:
        print_line("No sweep runs or waits for the service.")
        return
    for line in table(entries, Console().width, time.time()):
        print_line(line)


def table(entries: Sequence[QueuedSweep], width: int, now: float) -> list[str]:
    """Return the lines of the table: of every sweep its id, its figures, and why it waits.

    Args:
        entries: of the queue.
        width: columns of the terminal; with 72 or more, no line is wider.
        now: seconds since the epoch.
    """
    lines = [_row(*_HEADER)]
    for entry in entries:
        position = str(entry.position) if entry.position else ""
        amounts = (str(entry.share), str(entry.running), str(entry.wanted))
        figures = _row(position, entry.owner, entry.priority_class, *amounts, _start(entry, now))
        why = wrap(entry.why or "", max(20, width - len(_INDENT)))
        lines += [*wrap(entry.sweep, width), figures, *(f"{_INDENT}{part}" for part in why)]
    return lines


def _start(entry: QueuedSweep, now: float) -> str:
    if entry.position is None:
        return ""
    if entry.expected_start is None:
        return "unknown"
    return f"in {duration(max(0.0, entry.expected_start - now))}"


def _row(position: str, owner: str, priority_class: str, *figures: str) -> str:
    cut = owner if len(owner) <= _OWNER else f"{owner[: _OWNER - 1]}…"
    share, running, wanted, start = figures
    named = f"{position:>4}  {cut:<{_OWNER}}  {priority_class:<6}"
    return f"{named}  {share:>6}  {running:>7}  {wanted:>6}  {start}".rstrip()


def move(
    sweep: SweepId,
    priority_class: Annotated[str, typer.Argument(metavar="CLASS", help="One of urgent, normal, idle.")],
    weight: Annotated[
        float,
        typer.Option(
            "--weight",
            help="Among the owner's sweeps: twice the weight is twice the share. Back to 1 if left out.",
        ),
    ] = 1.0,
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
    sweeps: Annotated[
        float | None,
        typer.Option("--sweeps", help="Sweeps that wait or run in the service at once; `inf` for no limit."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Set them for an owner who has no sweep and is no user yet.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    server: Server = None,
) -> None:
    """Show the weight and the quotas of an owner, and change those that are given.

    Example:

        sweep quota ada --weight 2 --share 0.5 --gpu-hours 100 --sweeps 4
    """
    if server is not None:
        given = {"weight": weight, "share": share, "gpu_hours": gpu_hours, "sweeps": sweeps}
        changes = {name: value for name, value in given.items() if value is not None}
        print_line(_quotas(owner, *remote.quota(server, owner, changes, new=new)))
        return
    row = api.quota(owner, weight=weight, share=share, gpu_hours=gpu_hours, sweeps=sweeps, new=new, root=root)
    used = row.week_gpu_seconds / 3600
    shown = row.weight / UNIT, row.most_share / UNIT, row.most_gpu_hours, used, row.most_sweeps
    print_line(_quotas(row.name, *shown))


def _quotas(
    owner: str, weight: float, share: float, gpu_hours: float | None, used: float, sweeps: int | None
) -> str:
    hours = "no limit of" if gpu_hours is None else f"{gpu_hours:g}"
    most = "no limit of sweeps" if sweeps is None else counted(sweeps, "sweep")
    quotas = f"at most {share:.0%} of a cluster, {hours} GPU-hours a week ({used:.1f} used)"
    return f"{owner}: weight {weight:g}, {quotas}, {most} at once"
