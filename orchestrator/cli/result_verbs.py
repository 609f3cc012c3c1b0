"""The verb `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Json, Root, Server, SweepId, backend_of
from orchestrator.cli.printing import print_json, print_line
from orchestrator.report.words import near
from orchestrator.storage.paths import DEFAULT_ROOT, Paths
from orchestrator.text_file import check_output


def report(
    sweep: SweepId,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="File of the page. [default: in the root]"),
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Write the report of a sweep as it stands, also while it runs.

    Without `--server`, the leaderboard is printed too.

    Example:

        sweep report retrieval --output retrieval.html
    """
    if output is not None:
        check_output(output)
    backend = backend_of(server, root)
    page, sweep_id = backend.report(sweep), backend.status(sweep).id
    file = output or Paths.at(root).report(sweep_id) / "report.html"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(page)
    if as_json:
        print_json({"sweep": sweep_id, "report": str(file.absolute())})
        return
    if server is None:
        from orchestrator.cli.local_runs import show_result

        show_result(sweep_id, root)
    print_line(f"report: {near(file.absolute())}")
