"""The verb that writes files to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.api import templates
from orchestrator.cli.display import print_line
from orchestrator.errors import BadInput
from orchestrator.report.words import near


def init(
    task: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="Name of a search space, such as `listops`.")
    ] = None,
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where to write the files.")] = Path(),
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help=f"Write the files of a cluster instead: {', '.join(sorted(templates.CLUSTERS))}.",
        ),
    ] = None,
) -> None:
    """Write a search-space file with its JSON Schema, or with `--cluster` the files of a cluster.

    Without arguments, list the search spaces. No checkout of the project is needed.

    Example:

        sweep init listops
    """
    if cluster is not None:
        _write_cluster(cluster, task, folder)
    elif task is None:
        print_line("Search spaces: " + ", ".join(templates.tasks()))
    else:
        file, schema = templates.write_search_space(task, folder)
        print_line(f"{near(file.absolute())} is written, and {schema.name} for editors beside it.")
        print_line(f"Run it with: sweep {near(file.absolute())}")


def _write_cluster(kind: str, task: str | None, folder: Path) -> None:
    """Write cluster files; with `--cluster` the only argument is the folder."""
    if folder != Path():
        must = "must be given a folder alone"
        raise BadInput("init --cluster", must, f"`{task} {folder}`", "Leave the task out.")
    written = templates.write_cluster(kind, task or Path())
    for file in written:
        print_line(f"{near(file.absolute())} is written.")
    print_line(
        f"Fill in the values at the top of {near(written[0].absolute())}; its comments say what comes next."
    )
