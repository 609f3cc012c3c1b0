"""Verbs for machines and stores: `cluster`, `check`, `gc`, `mlflow` and `recover`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.api import clusters, maintenance
from orchestrator.cli.options import Json, Root, TrackingPatience
from orchestrator.cli.printing import deliverer, print_answer, print_json, print_line, undelivered
from orchestrator.errors import Exit, counted
from orchestrator.output import Console
from orchestrator.storage.paths import DEFAULT_ROOT

cluster_app = typer.Typer(
    help="Check cluster files, create the cluster token, drain a machine before it is reclaimed, show or stop"
    " the Ray that your sweeps share on this machine.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@cluster_app.command("check")
def check_cluster_file(
    file: Annotated[Path, typer.Argument(help="Cluster file, such as cluster/own-machines.yaml.")],
    as_json: Json = False,
) -> int:
    """Check a cluster file for secrets and for access by other users.

    Exit codes: 0 no problem found, 2 problems found, one on each line.

    Example:

        sweep cluster check cluster/aws.yaml
    """
    problems = clusters.check_file(file)
    code = Exit.BAD_INPUT if problems else Exit.COMPLETE
    if as_json:
        print_json({"file": str(file), "problems": [str(problem) for problem in problems]})
        return code
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    for problem in problems:
        console.print(str(problem), style="red", markup=False)
    if not problems:
        print_line(f"{file}: no problems found")
    return code


@cluster_app.command("token")
def make_token(own_root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """Create the cluster token unless it exists; cluster files copy it to every node.

    Example:

        sweep cluster token
    """
    file = str(clusters.make_token(root=own_root))
    if as_json:
        print_json({"file": file})
    else:
        print_line(file)


@cluster_app.command("leave")
def leave_machine(
    seconds: Annotated[
        float, typer.Option("--seconds", help="Seconds until this machine is reclaimed.")
    ] = 30.0,
    as_json: Json = False,
) -> None:
    """Drain this machine before it is reclaimed: save its trials, and start nothing new on it.

    Example:

        sweep cluster leave --seconds 60
    """
    leaving = clusters.leave(seconds)
    saving = counted(leaving.workers, "worker saves its trial", "workers save their trials")
    print_answer(leaving, f"{leaving.answer}\n{saving}", as_json=as_json)


@cluster_app.command("ray")
def show_ray(
    end: Annotated[bool, typer.Option("--end", help="Stop it unless a sweep uses it.")] = False,
    as_json: Json = False,
) -> None:
    """Show the Ray that your sweeps share on this machine, or stop it.

    The first sweep starts it; it ends by itself 300 seconds after the last sweep has left (SWEEP_RAY_LINGER).

    Exit codes: 0 shown or ended, or none runs; 2 a sweep uses it.

    Example:

        sweep cluster ray --end
    """
    shared = clusters.shared_ray()
    if as_json:
        if end and shared is not None:
            clusters.end_shared_ray()
        return print_json(None if shared is None else _as_json(shared))
    if shared is None:
        return print_line("you have no Ray running on this machine")
    setup, using = shared.head.setup, ", ".join(f"process {pid}" for pid in shared.users) or "no sweep"
    print_line(
        f"process {shared.head.pid} at {shared.head.address}: {setup.cpus} CPU(s), {setup.gpus} GPU(s), Ray"
        f" {setup.ray}, Python {setup.python}; used by {using}"
    )
    if end:
        clusters.end_shared_ray()
        print_line("ended")
    return None


def _as_json(shared: clusters.SharedRay) -> dict[str, Any]:
    head, setup = shared.head, shared.head.setup
    return {
        **{"pid": head.pid, "address": head.address, "users": list(shared.users)},
        **{"cpus": setup.cpus, "gpus": setup.gpus, "ray": setup.ray, "python": setup.python},
    }


def check(
    sweep: Annotated[
        str | None,
        typer.Argument(
            metavar="[SWEEP]", help="ID of a sweep, or the beginning of it. [default: every sweep]"
        ),
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> int:
    """Check that ledger, submissions, checkpoints, leases, MLflow and logs agree; nothing is repaired.

    Exit codes: 0 they agree, 1 they differ; each finding is printed on a line.

    Example:

        sweep check retrieval
    """
    checked = maintenance.check(sweep, root=root)
    code = Exit.FINDINGS if checked.findings else Exit.COMPLETE
    console = Console(soft_wrap=True, highlight=False)
    if as_json:
        print_json(asdict(checked))
        return code
    for finding in checked.findings:
        console.print(f"{finding.where}: {finding.problem}", markup=False)
    for name, count in checked.waiting.items():
        how = f"unless it is driven, {deliverer(name)}; MLflow is compared after that"
        console.print(f"{name}: {undelivered(count, how)}", markup=False)
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
        bool, typer.Option("--delete", help="Delete the files instead of listing them.")
    ] = False,
    caches: Annotated[
        bool, typer.Option("--caches", help="Include the compiled programs under the root.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """List the files that no row of the ledger refers to, with their sizes, or delete them.

    Example:

        sweep gc --delete
    """
    collected = maintenance.collect_garbage(delete=delete, caches=caches, root=root)
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
        console.print(f"{path}: belongs to no sweep of this ledger; kept", markup=False)
    action = ", deleted" if delete else "; `gc --delete` deletes them" if garbage else ""
    console.print(f"{len(garbage)} found, {sum(entry.bytes for entry in garbage):,} bytes{action}")


mlflow_app = typer.Typer(
    help="Rebuild what MLflow shows, which is a copy of the ledger.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@mlflow_app.command()
def rebuild(
    tracking_patience: TrackingPatience = maintenance.REDELIVERY_SECONDS,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Send every record of the ledger to MLflow again, whose database or server may have been emptied.

    A damaged SQLite database is kept under another name. What MLflow still has is not stored twice. A sweep
    that is driven is left out, because its driver notices by itself that MLflow has lost records.

    Exit codes: 0 done, 4 MLflow has not taken every record yet, 6 a sweep was left out.

    Example:

        sweep mlflow rebuild
    """
    if aside := maintenance.set_tracking_aside(root=root):
        print_line(f"the damaged database of MLflow is kept as {aside}")
    code = Exit.COMPLETE
    for sent in maintenance.redeliver(seconds=tracking_patience, root=root):
        if sent.busy is not None:
            Console(stderr=True, soft_wrap=True, highlight=False).print(str(sent.busy), markup=False)
            code = Exit.BUSY
            continue
        print_line(f"{sent.sweep}: {sent.records} records, {sent.waiting} of them still wait for MLflow")
        if sent.waiting and code == Exit.COMPLETE:
            code = Exit.RESUMABLE
    return code


def recover(root: Root = DEFAULT_ROOT) -> int:
    """Rebuild a damaged ledger from its backup, up to the last commit; the damaged file is kept.

    Example:

        sweep recover
    """
    done = maintenance.recover(root=root)
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
