"""The verbs `cluster check`, `cluster token` and `cluster leave`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.cli.options import DEFAULT_ROOT, Root, paths
from orchestrator.config.document import parse_document
from orchestrator.config.source import read_text
from orchestrator.driver import preflight
from orchestrator.exits import Exit
from orchestrator.machines import cluster_file, drain
from orchestrator.machines.token import ensure_token

cluster_app = typer.Typer(help="A token, a look at a cluster file, and leaving a machine that is taken away.")


@cluster_app.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="A cluster file, such as cluster/own-machines.yaml.")],
) -> int:
    """Refuse a file that holds a key, names one that others can read, or opens the cluster to the world.

    Exit codes: 0 nothing is wrong, 2 something is, a line each.
    """
    text = read_text(file)
    found = list(cluster_file.problems_of_text(str(file), text))
    if not found and cluster_file.is_for_ray_up(text):
        tree = parse_document(text, str(file)).entries
        document = {key: node.plain() for key, node in tree.items()}
        found += cluster_file.problems(str(file), document, _mode_of)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    for problem in found:
        console.print(str(problem), style="red", markup=False)
    if not found:
        Console(soft_wrap=True, highlight=False).print(f"{file}: nothing is wrong", markup=False)
    return Exit.BAD_INPUT if found else Exit.COMPLETE


@cluster_app.command("token")
def make_token(root: Root = DEFAULT_ROOT) -> None:
    """Make the token of your clusters, unless there is one; the cluster files bring it to every node."""
    where = paths(root)
    preflight.check_paths(where)
    ensure_token(where.token)
    Console(soft_wrap=True, highlight=False).print(str(where.token), markup=False)


@cluster_app.command("leave")
def leave(
    seconds: Annotated[float, typer.Option(help="How long this machine still has.")] = 30.0,
) -> None:
    """Give this machine up: nothing new begins on it, and its trials are saved to go on elsewhere."""
    console = Console(soft_wrap=True, highlight=False)
    console.print(drain.drain(seconds), markup=False)
    console.print(f"{drain.terminate_workers()} workers save their trials")


def _mode_of(path: str) -> int | None:
    file = Path(path).expanduser()
    return file.stat().st_mode & 0o777 if file.exists() else None
