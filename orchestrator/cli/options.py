"""Options that several verbs share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.errors import BadInput

_FOLDERS = "Folders"
EXECUTION = "Execution"
"""Heading in `--help` of the options that change how a sweep is run, not what it computes."""

SweepId = Annotated[str, typer.Argument(metavar="SWEEP", help="Id of a sweep, or its beginning.")]
TrialName = Annotated[
    list[str],
    typer.Argument(
        metavar="TRIAL",
        help="Key of a trial, as the leaderboard shows it; or its number, of a sweep or the newest one.",
    ),
]
Root = Annotated[
    Path,
    typer.Option(
        "--root",
        envvar="SWEEP_ROOT",
        help="Folder of everything that sweeps write.",
        rich_help_panel=_FOLDERS,
    ),
]
Data = Annotated[
    Path,
    typer.Option("--data", envvar="SWEEP_DATA", help="Folder of the data sets.", rich_help_panel=_FOLDERS),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
TrackingPatience = Annotated[
    float,
    typer.Option(
        "--tracking-patience",
        metavar="SECONDS",
        envvar="SWEEP_TRACKING_PATIENCE",
        help="How long to wait for MLflow at the end. Records that it has not taken stay in the ledger.",
        rich_help_panel=EXECUTION,
    ),
]
Plain = Annotated[
    bool, typer.Option("--plain", help="Print lines on a terminal too, instead of a view that is redrawn.")
]


def trial_name(words: list[str]) -> str:
    """Return what names a trial, given as one word, or as a sweep and a number.

    Raises:
        BadInput: there are more words.
    """
    if len(words) > 2:
        must = "must be one trial: its key, its number, or a sweep and a number"
        raise BadInput("TRIAL", must, f"{len(words)} words", "For example `sweep logs 0`.")
    return "-".join(words)
