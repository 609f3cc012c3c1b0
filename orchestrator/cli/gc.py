"""The verb `gc`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.cli.options import DEFAULT_ROOT, Json, Root, opened, paths
from orchestrator.errors import Busy
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger import Ledger
from orchestrator.storage.paths import Paths
from orchestrator.upkeep import orphans
from orchestrator.upkeep.orphans import Garbage

Delete = Annotated[bool, typer.Option("--delete", help="Delete it; without this it is only told.")]
Caches = Annotated[bool, typer.Option("--caches", help="The compiled programs under the root too.")]


def gc(
    delete: Delete = False, caches: Caches = False, root: Root = DEFAULT_ROOT, as_json: Json = False
) -> None:
    """Tell which files no row of the ledger needs, and how large they are; delete them with `--delete`."""
    ledger, where = opened(root), paths(root)
    found = [each for record in ledger.sweeps() for each in _of_sweep(ledger, record.id, where, delete)]
    found += _gone(orphans.compiled_programs(where), delete) if caches else []
    console = Console(soft_wrap=True, highlight=False)
    if as_json:
        rows = [{"path": str(each.path), "why": each.why, "bytes": each.bytes} for each in found]
        console.print_json(json.dumps({"deleted": delete, "found": rows}))
        return
    for each in found:
        console.print(f"{each.path}: {each.why}, {each.bytes:,} bytes", markup=False)
    for path in orphans.unknown_sweeps(ledger, where):
        console.print(f"{path}: of no sweep in this ledger; left alone", markup=False)
    told = f"{len(found)} found, {sum(each.bytes for each in found):,} bytes"
    console.print(told + (", deleted" if delete else "; `gc --delete` deletes them" if found else ""))


def _of_sweep(ledger: Ledger, sweep_id: str, where: Paths, delete: bool) -> list[Garbage]:
    """Look at a sweep while nobody drives it, so that no checkpoint can appear meanwhile."""
    try:
        with Lease(ledger, sweep_id):
            return _gone(orphans.garbage_of(ledger, sweep_id, where), delete)
    except Busy as busy:
        Console(stderr=True, soft_wrap=True, highlight=False).print(str(busy), markup=False)
        return []


def _gone(found: list[Garbage], delete: bool) -> list[Garbage]:
    for each in found if delete else ():
        orphans.delete(each.path)
    return found
