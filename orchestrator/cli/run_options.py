"""Options of the verbs that run a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import EXECUTION, Data, Plain, Root, TrackingPatience
from orchestrator.driver.detached import DEADLINE_SECONDS, DETACH, NOTIFY, TRACKING_SECONDS
from orchestrator.storage.paths import DEFAULT_DATA, DEFAULT_ROOT

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Search-space file, such as search_spaces/retrieval.yaml."),
]
Extend = Annotated[
    str | None,
    typer.Option(
        "--extend",
        metavar="KEY=VALUE",
        help="Change the budget, such as `trials=128`, or train the best trials longer with `steps=N`.",
    ),
]
Top = Annotated[
    int | None,
    typer.Option(
        "--top", metavar="K", help="With `--extend steps=N`: continue the best K trials. [default: 1]", min=1
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue the last sweep of the file even if the file has changed.",
        rich_help_panel=EXECUTION,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(help="Profile of the file; `full` for none. [default: `laptop` without a GPU]"),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the file, such as `training.steps=1000`; repeatable.",
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """The options of every verb that runs a sweep; each field is an option."""

    data: Data = DEFAULT_DATA
    root: Root = DEFAULT_ROOT
    deadline: Annotated[
        float,
        typer.Option(
            "--deadline",
            metavar="SECONDS",
            help="Kill and retry a trial that makes no progress for this long.",
            rich_help_panel=EXECUTION,
        ),
    ] = DEADLINE_SECONDS
    tracking_patience: TrackingPatience = TRACKING_SECONDS
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            envvar="SWEEP_WAIT",
            help="Give up if no trial can start for this long. [default: 3600 on a cluster, 10 on one"
            " machine; no limit while other sweeps run]",
            rich_help_panel=EXECUTION,
        ),
    ] = None
    unless_stopped: Annotated[
        bool,
        typer.Option(
            "--unless-stopped",
            envvar="SWEEP_UNLESS_STOPPED",
            help="Exit immediately if the sweep was stopped (for batch jobs that restart).",
            rich_help_panel=EXECUTION,
        ),
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print only the result.", rich_help_panel=EXECUTION)
    ] = False
    plain: Plain = False
    notify: Annotated[
        str | None,
        typer.Option(
            "--notify",
            envvar=NOTIFY,
            metavar="COMMAND|URL",
            help="Send events (new best trial, failure, end) to a URL, `slack+https://...`, `mailto:...` or"
            " the standard input of a command.",
            rich_help_panel=EXECUTION,
        ),
    ] = None
    here: Annotated[
        bool,
        typer.Option(
            "--here",
            help="Run the sweep in this process even if a service is running.",
            rich_help_panel=EXECUTION,
        ),
    ] = False
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            envvar=DETACH,
            help="Run the sweep in the background and follow it; it survives closing the terminal.",
            rich_help_panel=EXECUTION,
        ),
    ] = False
