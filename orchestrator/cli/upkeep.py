"""The verbs that keep a root in order: `check`, `gc`, `recover`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from orchestrator.api import upkeep
from orchestrator.api.workspace import DEFAULT_ROOT
from orchestrator.cli.display import delivered_by, print_json, print_line, waiting
from orchestrator.cli.options import Json, Root, TrackingPatience
from orchestrator.errors import Exit
from orchestrator.output import Console


def check(
    sweep: Annotated[
        str | None,
        typer.Argument(metavar="[SWEEP]", help="Id of a sweep, or its beginning; every sweep if left out."),
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> int:
    """Check that ledger, submissions, checkpoints, leases, MLflow and logs agree; nothing is repaired.

    Exit codes: 0 they agree, 1 they do not, a line for each finding.

    Example:

        sweep check retrieval
    """
    checked = upkeep.check(sweep, root=root)
    code = Exit.FINDINGS if checked.findings else Exit.COMPLETE
    console = Console(soft_wrap=True, highlight=False)
    if as_json:
        print_json(asdict(checked))
        return code
    for finding in checked.findings:
        console.print(f"{finding.where}: {finding.problem}", markup=False)
    for name, count in checked.waiting.items():
        how = f"unless it is driven, {delivered_by(name)}; MLflow is compared after that"
        console.print(f"{name}: {waiting(count, how)}", markup=False)
    for name, paths in checked.leftovers.items():
        what = f"no trial refers to it; the next run of {name} deletes it, as `sweep gc --delete` does"
        for path in paths:
            console.print(f"{path}: {what}", markup=False)
    console.print(
        f"Sweeps checked: {len(checked.sweeps)}. Submissions checked: {len(checked.submissions)}."
        f" Findings: {len(checked.findings)}."
    )
    return code


def gc(
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the files; without this they are listed.")
    ] = False,
    caches: Annotated[
        bool, typer.Option("--caches", help="The compiled programs under the root too.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """List the files that no row of the ledger refers to, with their sizes, or delete them.

    Example:

        sweep gc --delete
    """
    collected = upkeep.collect_garbage(delete=delete, caches=caches, root=root)
    for busy in collected.busy:
        Console(stderr=True, soft_wrap=True, highlight=False).print(str(busy), markup=False)
    console = Console(soft_wrap=True, highlight=False)
    garbage = collected.garbage
    if as_json:
        rows = [{"path": entry.path, "why": entry.why, "bytes": entry.bytes} for entry in garbage]
        print_json({"deleted": delete, "found": rows})
        return
    for entry in garbage:
        console.print(f"{entry.path}: {entry.why}, {entry.bytes:,} bytes", markup=False)
    for path in collected.unknown:
        console.print(f"{path}: of no sweep in this ledger; left alone", markup=False)
    action = ", deleted" if delete else "; `gc --delete` deletes them" if garbage else ""
    console.print(f"{len(garbage)} found, {sum(entry.bytes for entry in garbage):,} bytes{action}")


def recover(
    mlflow: Annotated[
        bool, typer.Option("--mlflow", help="Leave the ledger alone; send all its records to MLflow again.")
    ] = False,
    tracking_patience: TrackingPatience = upkeep.REDELIVERY_SECONDS,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Rebuild a damaged ledger from its backup, up to the last commit; the damaged file is kept.

    Exit codes: 0 done; with `--mlflow`, 4 if MLflow has not taken every record yet.

    Example:

        sweep recover
        sweep recover --mlflow
    """
    if mlflow:
        return _redeliver(tracking_patience, root)
    done = upkeep.recover(root=root)
    for sweep_id, commits in done.commits.items():
        print_line(f"{sweep_id}: {commits} commits recovered, {done.lost.get(sweep_id, 0)} lost")
    for sweep_id in done.submissions:
        print_line(f"{sweep_id}: submission recovered")
    for sweep_id in done.lost_submissions:
        print_line(f"{sweep_id}: submission lost, because its backup is damaged: submit it again")
    for name in done.users:
        print_line(f"{name}: user recovered")
    for name in done.lost_users:
        print_line(f"{name}: user lost, because the backup is damaged: add the user again")
    for decision in done.decisions:
        print_line(f"{decision.replace('_', ' ')}: recovered")
    for decision in done.lost_decisions:
        print_line(f"{decision.replace('_', ' ')}: lost, because its backup is damaged: make it again")
    print_line(f"the damaged ledger is kept as {done.damaged}")
    return Exit.COMPLETE


def _redeliver(seconds: float, root: Root) -> int:
    if aside := upkeep.set_tracking_aside(root=root):
        print_line(f"the damaged database of MLflow is kept as {aside}")
    waiting = 0
    for sent in upkeep.redeliver(seconds=seconds, root=root):
        waiting += sent.waiting
        print_line(f"{sent.sweep}: {sent.records} records, {sent.waiting} of them still wait for MLflow")
    return Exit.RESUMABLE if waiting else Exit.COMPLETE
