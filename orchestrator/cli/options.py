"""Options that several verbs share, and the backend that they choose."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from orchestrator import client
from orchestrator.client.protocol import URL, Backend
from orchestrator.errors import BadInput

_FOLDERS = "Folders"
EXECUTION = "Execution"
"""Heading in `--help` of the options that change how a sweep is run, not what it computes."""

TABLE = "Table of curves"
"""Heading in `--help` for the options of `replay` that read a local file."""

OF_THIS_MACHINE = frozenset({_FOLDERS, EXECUTION, TABLE})
"""Headings of the options that have no effect on a remote service."""

SweepId = Annotated[str, typer.Argument(metavar="SWEEP", help="ID of a sweep, or the beginning of it.")]
OneTrial = Annotated[str | None, typer.Argument(metavar="[TRIAL]", help="Number of a trial.")]
TrialName = Annotated[
    list[str],
    typer.Argument(
        metavar="TRIAL",
        help="Key of a trial, or its number: in a sweep (`SWEEP 7`) or in the newest sweep (`7`).",
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
        help="Seconds to wait for MLflow at the end. Undelivered records stay queued.",
        rich_help_panel=EXECUTION,
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="Print plain lines instead of a live view.")]

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar=URL,
        show_envvar=False,
        help="URL of a remote service. [env: SWEEP_URL; token: SWEEP_TOKEN]",
    ),
]
Since = Annotated[
    str | None, typer.Option("--since", help="Only this period until now, such as 12h, 7d or 2w.")
]
Key = Annotated[
    str | None,
    typer.Option("--key", help="Idempotency key: repeating the request with it adds nothing."),
]


Code = TypeVar("Code")


def with_options(**groups: type) -> Callable[[Callable[..., Code]], Callable[..., Code]]:
    """Return a decorator that adds the options of dataclasses to a verb, which receives one object of each.

    Typer reads the parameters of a verb from its signature, so the fields are put into the signature.

    Example:

        @with_options(options=RunOptions)
        def run(file: File, *, options: RunOptions) -> int: ...

    Args:
        groups: Dataclass of options, each field with its annotation and default, by parameter of the verb.
    """

    def decorate(verb: Callable[..., Code]) -> Callable[..., Code]:
        own = signature(verb, eval_str=True).parameters
        added = {name: _parameters(group) for name, group in groups.items()}

        @wraps(verb)
        def command(**given: Any) -> Code:
            options = {
                name: groups[name](**{parameter.name: given.pop(parameter.name) for parameter in parameters})
                for name, parameters in added.items()
            }
            return verb(**given, **options)

        parameters = [
            each.replace(kind=Parameter.KEYWORD_ONLY)
            for name, parameter in own.items()
            for each in added.get(name, [parameter])
        ]
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _parameters(group: type) -> list[Parameter]:
    kinds = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=kinds[field.name])
        for field in fields(group)
    ]


def backend_of(server: str | None, root: Path) -> Backend:
    """Return the service at a URL, or else the ledger of this machine."""
    if server is not None:
        return client.http.HttpBackend(server)
    from orchestrator.api.local import LocalBackend

    return LocalBackend(root)


def trial_name(words: list[str]) -> str:
    """Return the name of a trial, given as one word, or as a sweep and a number.

    Raises:
        BadInput: There are more words.
    """
    if len(words) > 2:
        must = "must be one trial: its key, its number, or a sweep and a number"
        raise BadInput("TRIAL", must, f"{len(words)} words", "For example `sweep logs 0`.")
    return "-".join(words)


def earliest(period: str | None) -> float | None:
    """Return the beginning of a period such as `7d` that ends now, in seconds since the epoch; None for None.

    Raises:
        BadInput: It is not a number and a unit.
    """
    if period is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})([mhdw])", period)
    if found is None:
        must = "must be a number and m, h, d or w, for minutes, hours, days or weeks"
        raise BadInput("--since", must, repr(period)[:80], "For example 7d.")
    return time.time() - int(found[1]) * {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}[found[2]]
