"""The verb `ui`."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import DEFAULT_ROOT, Root, paths


def ui(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 5000, root: Root = DEFAULT_ROOT
) -> int:
    """Serve MLflow's UI on 127.0.0.1, until Ctrl-C."""
    from orchestrator.tracking.ui import serve

    where = paths(root)
    where.create()
    return serve(where.tracking_uri, where.artifacts, port)
