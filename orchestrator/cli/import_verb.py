"""The verb that translates the search spaces of other tools."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.api.imports import checked_output, imported
from orchestrator.cli.printing import print_line
from orchestrator.errors import BadInput, counted
from orchestrator.output import print_error
from orchestrator.report.words import near


def import_search(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|FOLDER|URL",
            help="W&B sweep, Hydra configuration, Optuna storage, or folder of Ray Tune results.",
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OVERRIDE]...", help="Hydra's overrides, such as 'lr=interval(0.001, 0.1)'."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the search-space file here instead of printing it."),
    ] = None,
    study: Annotated[
        str | None, typer.Option(metavar="NAME", help="Optuna study, if the storage has several.")
    ] = None,
    minimize: Annotated[
        str | None, typer.Option(metavar="METRIC", help="Metric to minimize, for Ray Tune or Optuna.")
    ] = None,
    maximize: Annotated[
        str | None, typer.Option(metavar="METRIC", help="Metric to maximize, for Ray Tune or Optuna.")
    ] = None,
) -> None:
    """Translate the search space of another tool into a search-space file.

    The source is read, not run. Parts without a counterpart and guesses are printed, and written as comments
    into the file. The trials become known results; if they are not in a storage, a CSV file beside the
    search-space file contains them.

    Example:

        sweep import wandb.yaml --output search.yaml
    """
    if minimize is not None and maximize is not None:
        raise BadInput("--minimize", "must be left out if --maximize is given", minimize, "Name one metric.")
    objective = {"minimize": minimize} if minimize else {"maximize": maximize} if maximize else None
    known = None if output is None else checked_output(output)
    name = None if known is None else known.name
    found = imported(source, overrides or (), study=study, objective=objective, known=name)
    for note in found.notes:
        print_error(note)
    if output is None or known is None:
        print_line(found.text.rstrip("\n"))
        return
    output.write_text(found.text, encoding="utf-8")
    written = near(output.absolute())
    print_line(f"{written} is written. Check it with: sweep validate {shlex.quote(written)}")
    if found.known:
        known.write_text(found.known, encoding="utf-8")
        print_line(
            f"{near(known.absolute())} is written: {counted(found.rows, 'known result', 'known results')}."
        )
