"""The options of every verb that runs a sweep, each declared once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from orchestrator.api.following import DETACH
from orchestrator.api.sweep import DEADLINE_SECONDS, TRACKING_SECONDS
from orchestrator.api.workspace import DEFAULT_DATA, DEFAULT_ROOT
from orchestrator.cli.options import EXECUTION, Data, Plain, Root, TrackingPatience
from orchestrator.driver.notifications import NOTIFY

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="A search-space file, such as search_spaces/retrieval.yaml."),
]
Extend = Annotated[
    str | None,
    typer.Option("--extend", metavar="KEY=VALUE", help="Change the budget, such as `trials=128`."),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="If the file was changed since its last sweep, go on with that sweep."),
]
Profile = Annotated[
    str | None,
    typer.Option(help="A profile of the file; `full` for none. If left out, `laptop` where there is no GPU."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the file, such as `training.steps=1000`; may be given several times.",
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
            help="How long a running trial may neither train nor report before it is killed and retried.",
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
            help="How long to wait while no trial can start. If left out: 3600 on a cluster; on this machine"
            " 10, or without limit while other sweeps use it.",
            rich_help_panel=EXECUTION,
        ),
    ] = None
    unless_stopped: Annotated[
        bool,
        typer.Option(
            "--unless-stopped",
            envvar="SWEEP_UNLESS_STOPPED",
            help="End at once if `stop` has ended the sweep: for a start by a batch system.",
            rich_help_panel=EXECUTION,
        ),
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print the result alone.", rich_help_panel=EXECUTION)
    ] = False
    plain: Plain = False
    notify: Annotated[
        str | None,
        typer.Option(
            "--notify",
            envvar=NOTIFY,
            metavar="COMMAND|URL",
            help="Receives JSON at a new best trial, at a failure and at the end: a command on its standard"
            " input, a URL by POST.",
            rich_help_panel=EXECUTION,
        ),
    ] = None
    here: Annotated[
        bool,
        typer.Option(
            "--here",
            help="Run the sweep in this process, even if a service runs for the root.",
            rich_help_panel=EXECUTION,
        ),
    ] = False
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            envvar=DETACH,
            help="Run the sweep in a process of its own and follow it: closing the terminal ends only the"
            " following.",
            rich_help_panel=EXECUTION,
        ),
    ] = False


def with_run_options(verb: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options of `RunOptions`, and call it with `options`, the object that they make.

    Typer reads the parameters of a verb from its signature, so the fields are put into the signature.
    """
    given_to_verb = signature(verb, eval_str=True).parameters
    own = [parameter for name, parameter in given_to_verb.items() if name != "options"]
    kinds = get_type_hints(RunOptions, include_extras=True)
    shared = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=kinds[field.name])
        for field in fields(RunOptions)
    ]

    @wraps(verb)
    def command(**given: Any) -> int:
        options = RunOptions(**{parameter.name: given.pop(parameter.name) for parameter in shared})
        return verb(**given, options=options)

    parameters = [*own, *shared]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
