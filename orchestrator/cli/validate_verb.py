"""The verb `validate`, in its own module, because a wrong file or `--server` does not need the ledger."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from orchestrator import client
from orchestrator.cli.options import EXECUTION, Data, Json, Root, Server
from orchestrator.cli.printing import print_json, print_line
from orchestrator.cli.run_options import File, Overrides, Profile
from orchestrator.storage.paths import DEFAULT_DATA, DEFAULT_ROOT


def validate(
    file: File,
    profile: Profile = None,
    overrides: Overrides = None,
    data: Data = DEFAULT_DATA,
    root: Root = DEFAULT_ROOT,
    flops: Annotated[
        bool,
        typer.Option(
            "--flops",
            help="Also count FLOPs of a training step (takes seconds per network).",
            rich_help_panel=EXECUTION,
        ),
    ] = False,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Check a search-space file and print what would run, with the size of each network; nothing is written.

    Mistakes are reported at once; the sizes take seconds.

    Example:

        sweep validate search_spaces/retrieval.yaml --profile laptop
    """
    name, changed = profile or "auto", overrides or ()
    if server is not None:
        plan = client.http.HttpBackend(server).validate(file, profile=name, overrides=changed)
    else:
        from orchestrator.api.planning import planned_file

        plan = planned_file(file, profile=name, overrides=changed, root=root, data=data, work=flops)
    if as_json:
        print_json(asdict(plan))
        return
    for line in plan.lines:
        print_line(line)
