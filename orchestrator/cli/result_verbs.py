"""The verbs `report` and `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Json, Root, Server, SweepId, backend_of
from orchestrator.cli.printing import print_json, print_line, print_tables
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


def compare(
    sweeps: Annotated[
        list[str], typer.Argument(metavar="SWEEP...", help="IDs of sweeps, or the beginnings of them.")
    ],
    root: Root = DEFAULT_ROOT,
    tuning: Annotated[
        bool, typer.Option("--tuning", help="Add tuning curves (the best of k trials), for random searches.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", help="Also write an HTML page with plots of the curves.")
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Print sweeps side by side: results by seed, trials spent, differences, and published results.

    A sweep is named the best one of its task if the difference to every other sweep is established: with 95 %
    confidence for all differences together, over both seeds and test examples, and with at least 3 seeds
    each. Otherwise the output gives the reason, and the smallest difference that could be established.

    Example:

        sweep compare retrieval listops
        sweep compare random-rotrnn random-lru --tuning --output curves.html
    """
    if output is not None:
        check_output(output)
    compared = backend_of(server, root).compare(sweeps, tuning=tuning, page=output is not None)
    if output is not None and compared.page is not None:
        output.write_text(compared.page, encoding="utf-8")
    if as_json:
        print_json(compared.document)
    elif as_markdown:
        print_line(compared.markdown)
    else:
        print_tables(compared.tables)
