"""The verb `replay`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import TABLE, Json, Root, Server, backend_of, with_options
from orchestrator.cli.printing import print_json, print_line
from orchestrator.client.answers import ReplayedScheduler, ReplayReport
from orchestrator.errors import BadInput, counted
from orchestrator.report import words
from orchestrator.storage.paths import DEFAULT_ROOT


@dataclass(frozen=True)
class TableOptions:
    """The options of `replay` for a table of curves; each field is an option."""

    curves: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table of curves instead of a sweep: JSON lines.",
            rich_help_panel=TABLE,
        ),
    ] = None
    values: Annotated[
        str,
        typer.Option(
            metavar="PATH", help="Path of the curve in each line of the table.", rich_help_panel=TABLE
        ),
    ] = "curve"
    length: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Field of each line with the length of the whole training.",
            rich_help_panel=TABLE,
        ),
    ] = None
    trials: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Number of trials in each draw from the table.", rich_help_panel=TABLE
        ),
    ] = 64
    minimize: Annotated[
        bool,
        typer.Option("--minimize", help="Smaller values of the table are better.", rich_help_panel=TABLE),
    ] = False


@with_options(table=TableOptions)
def replay(
    sweep: Annotated[
        str | None, typer.Argument(metavar="[SWEEP]", help="ID of a sweep, or its beginning.")
    ] = None,
    scheduler: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:OPTION=VALUE,...]",
            help="Scheduler to replay, such as `asha:mode=promote,reduction=3`. Repeatable. [default: seven]",
        ),
    ] = None,
    workers: Annotated[
        list[int] | None, typer.Option(metavar="N", min=1, help="Number of concurrent trials. Repeatable.")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of replays, each with the trials in another random order.",
        ),
    ] = None,
    table: TableOptions = TableOptions(),
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw cost against regret as an HTML page.")
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Print what other schedulers would have cost and found, from the learning curves of a sweep.

    The cost is a fraction of the cost without early stopping; the unit of time is one complete training.
    The regret is the difference between the chosen trial and the best complete one. A trial that was stopped
    has no curve beyond its last report, so its cost is a range and its value is unknown. A sweep with
    `scheduler: none` has all curves.

    Example:

        sweep replay retrieval --scheduler asha:reduction=3 --workers 16
    """
    if (sweep is None) == (table.curves is None):
        raise BadInput(
            "replay", "needs a sweep or --curves", "both" if sweep else "neither", "Give one of them."
        )
    if table.curves is not None or output is not None:
        from orchestrator.api import replays  # Ray, whose schedulers decide, takes seconds

    if table.curves is not None:
        report = replays.replay_curves(
            table.curves,
            table.values,
            table.length,
            scheduler or (),
            workers or (8,),
            maximize=not table.minimize,
            trials=table.trials,
            draws=draws or 100,
        )
    else:
        backend = backend_of(server, root)
        report = backend.replay(str(sweep), scheduler or (), workers or (), draws=draws or 1)
    if output is not None:
        replays.write_page(report, output)
    if as_json:
        print_json(asdict(report))
    else:
        _show(report)


COLUMNS = ("scheduler", "workers", "cost", "time", "found", "regret", "same", "none complete", "unknown")


def _show(report: ReplayReport) -> None:
    lines = [COLUMNS, *map(_cells, report.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print_line("  ".join(map(str.ljust, line, widths)).rstrip())
    if report.truncated:
        print_line(
            f"{counted(report.truncated, 'trial')} of {report.trials} stopped early: where a scheduler"
            " continues one, the cost is a range, and the trial might have been the best."
        )
    if report.decisions:
        repeats = (
            "repeats"
            if not report.differing
            else f"does not repeat those of {', '.join(report.differing)} among"
        )
        print_line(f"The recorded scheduler {repeats} all {report.decisions} recorded decisions.")


def _cells(row: ReplayedScheduler) -> tuple[str, ...]:
    return (
        row.scheduler,
        str(row.workers),
        _range(row.cost),
        _range(row.time),
        _number(row.found),
        _number(row.regret),
        f"{row.same:.0%}",
        f"{row.unfinished:.0%}",
        f"{row.unknown:.1f}",
    )


def _range(ends: tuple[float, float]) -> str:
    low, high = (f"{end:.3g}" for end in ends)
    return low if low == high else f"{low} to {high}"


def _number(value: float | None) -> str:
    return "" if value is None else words.brief(value)
