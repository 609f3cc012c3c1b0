"""The verb `sql`."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Annotated

import typer

from orchestrator.cli.options import Json, Root, Server, backend_of
from orchestrator.cli.printing import print_json, print_line
from orchestrator.client.answers import QueryAnswer
from orchestrator.client.protocol import SQL_ROWS
from orchestrator.errors import BadInput
from orchestrator.report.words import inert
from orchestrator.storage.paths import DEFAULT_ROOT


def sql(
    query: Annotated[str, typer.Argument(help="SELECT statement in SQLite's dialect.")],
    rows: Annotated[
        int, typer.Option(metavar="N", min=1, help="Largest number of rows, up to 10,000.")
    ] = SQL_ROWS,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for spreadsheets.")] = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Read the ledger by SQL; nothing is written, and a query ends after 10 s.

    The views are sweeps, trials, reports, metrics, attempts, evaluations, decisions and events. With
    `--server`, an admin reads them.

    Example:

        sweep sql "select state, count(*) from trials group by state"
    """
    if as_csv and as_json:
        raise BadInput("--csv", "must be left out if --json is given", "both", "Choose one of them.")
    answer = backend_of(server, root).sql(query, rows=rows)
    if as_json:
        print_json(asdict(answer))
        return
    for line in _csv(answer) if as_csv else _aligned(answer):
        print_line(line)
    if answer.truncated and not as_csv:
        print_line(f"The first {len(answer.rows):,} rows; there are more.")


def _csv(answer: QueryAnswer) -> list[str]:
    """Return the lines of a CSV file, in which no cell is a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([[inert(cell) for cell in row] for row in (answer.columns, *answer.rows)])
    return out.getvalue().splitlines()


def _aligned(answer: QueryAnswer) -> list[str]:
    shown = [["" if cell is None else _cell(cell) for cell in row] for row in (answer.columns, *answer.rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in shown]


def _cell(cell: str | float) -> str:
    return " ".join(cell.split()) if isinstance(cell, str) else str(cell)
