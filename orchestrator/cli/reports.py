"""The verbs that tell what came out: `report` and `compare`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from orchestrator.cli.found import sweep_named
from orchestrator.cli.options import DEFAULT_ROOT, Root, SweepId, opened, paths
from orchestrator.report.compare import comparison
from orchestrator.report.history import read
from orchestrator.report.report import show, write
from orchestrator.report.summary import summarise


def report(
    sweep: SweepId,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Write the report of a sweep as it stands, also while it runs, and print its leaderboard."""
    ledger = opened(root)
    found = sweep_named(ledger, sweep)
    where = paths(root)
    write(ledger, found.id, where.report(found.id))
    show(found.id, where, Console(soft_wrap=True))


def compare(
    sweeps: Annotated[list[str], typer.Argument(help="Ids of sweeps, or their beginnings.")],
    root: Root = DEFAULT_ROOT,
) -> None:
    """Print sweeps side by side in Markdown, with the published figures of their layers and tasks."""
    ledger = opened(root)
    found = [summarise(read(ledger, sweep_named(ledger, name).id)) for name in sweeps]
    Console(soft_wrap=True).print(comparison(found), markup=False, highlight=False)
