"""The verbs `cluster check`, `cluster token`, `cluster leave` and `cluster ray`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.api import cluster
from orchestrator.api.workspace import DEFAULT_ROOT
from orchestrator.cli.display import print_line
from orchestrator.cli.options import Root
from orchestrator.counts import counted
from orchestrator.errors import Exit
from orchestrator.output import Console

cluster_app = typer.Typer(
    help="Check a cluster file, create the token of your clusters, leave a machine that will be taken away,"
    " show or end the Ray that your sweeps share on this machine.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@cluster_app.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="A cluster file, such as cluster/own-machines.yaml.")],
) -> int:
    """Check that a cluster file holds no secret and opens the cluster to no other user.

    Exit codes: 0 nothing is wrong, 2 something is, a line each.

    Example:

        sweep cluster check cluster/aws.yaml
    """
    problems = cluster.check_file(file)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    for problem in problems:
        console.print(str(problem), style="red", markup=False)
    if not problems:
        print_line(f"{file}: nothing is wrong")
    return Exit.BAD_INPUT if problems else Exit.COMPLETE


@cluster_app.command("token")
def make_token(root: Root = DEFAULT_ROOT) -> None:
    """Create the token of your clusters unless it exists; cluster files copy it to every node.

    Example:

        sweep cluster token
    """
    print_line(str(cluster.make_token(root=root)))


@cluster_app.command("leave")
def leave(
    seconds: Annotated[float, typer.Option("--seconds", help="How long this machine will still run.")] = 30.0,
) -> None:
    """Leave this machine before it is taken away: nothing new starts on it, and its trials are saved.

    Example:

        sweep cluster leave --seconds 60
    """
    leaving = cluster.leave(seconds)
    print_line(leaving.answer)
    print_line(counted(leaving.workers, "worker saves its trial", "workers save their trials"))


@cluster_app.command("ray")
def ray(
    end: Annotated[bool, typer.Option("--end", help="End it, unless a sweep uses it.")] = False,
) -> None:
    """Show the Ray that your sweeps share on this machine, or end it.

    The first sweep starts it; it ends by itself 300 seconds after the last sweep has left (SWEEP_RAY_LINGER).

    Exit codes: 0 shown or ended, or none runs; 2 a sweep uses it.

    Example:

        sweep cluster ray --end
    """
    shared = cluster.shared_ray()
    if shared is None:
        return print_line("no Ray runs on this machine for you")
    setup, using = shared.head.setup, ", ".join(f"process {pid}" for pid in shared.users) or "no sweep"
    print_line(
        f"process {shared.head.pid} at {shared.head.address}: {setup.cpus} CPU(s), {setup.gpus} GPU(s), Ray"
        f" {setup.ray}, Python {setup.python}; used by {using}"
    )
    if end:
        cluster.end_shared_ray()
        print_line("ended")
    return None
