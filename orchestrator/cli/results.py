"""The verbs about the results of a sweep: `report`, `compare`, `export-study`, `export-tensorboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.api.sweep import Sweep
from orchestrator.api.workspace import DEFAULT_ROOT, check_output
from orchestrator.cli import remote
from orchestrator.cli.display import print_json, print_line
from orchestrator.cli.options import Json, Root, SweepId
from orchestrator.cli.output import Console
from orchestrator.cli.remote import Server
from orchestrator.counts import counted
from orchestrator.report import comparison, terminal
from orchestrator.report.words import near

_COMMAND = "python -m orchestrator.sweep"


def report(
    sweep: SweepId,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write the page to this file too."),
    ] = None,
    root: Root = DEFAULT_ROOT,
    server: Server = None,
) -> None:
    """Write the report of a sweep as it stands, also while it runs, and print its leaderboard.

    Of a sweep of `--server`, the page is written to `--output`, or else below the root of this machine.

    Example:

        sweep report retrieval --output retrieval.html
    """
    if output is not None:
        check_output(output)
    if server is not None:
        remote.report(server, sweep, output)
        return
    selected = Sweep.find(sweep, root=root)
    page = selected.report().html
    if output is not None:
        output.write_bytes(page.read_bytes())
    show_result(selected, Console(soft_wrap=True))


def compare(
    sweeps: Annotated[
        list[str], typer.Argument(metavar="SWEEP...", help="Ids of sweeps, or their beginnings.")
    ],
    root: Root = DEFAULT_ROOT,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a page.")] = False,
    as_json: Json = False,
) -> None:
    """Print sweeps side by side: results by seed, trials spent, differences, and published results.

    A sweep is named the best one of its task if the difference to every other sweep is established: with 95 %
    confidence for all differences together, over both seeds and test examples, and with at least 3 seeds
    each. Otherwise the verb says why none is named, and how many seeds would be enough.

    Example:

        sweep compare retrieval listops
    """
    first, *others = [Sweep.find(name, root=root) for name in sweeps]
    compared = first.compare(*others)
    if as_json:
        print_json(compared.document())
    elif as_markdown:
        print_line(comparison.markdown(compared))
    else:
        terminal.show_comparison(compared, Console(soft_wrap=True))


def export_study(
    sweep: SweepId,
    file: Annotated[Path, typer.Argument(help="The new SQLite file.")],
    root: Root = DEFAULT_ROOT,
) -> None:
    """Write the study of a sweep as an Optuna storage, which `optuna-dashboard sqlite:///FILE` opens.

    Example:

        sweep export-study retrieval study.db
    """
    count = Sweep.find(sweep, root=root).export_study(file)
    name = near(file.absolute())
    print_line(f"{counted(count, 'trial')} in {name}: optuna-dashboard sqlite:///{name}")


def export_tensorboard(
    sweep: SweepId,
    folder: Annotated[Path, typer.Argument(help="The new folder.")],
    root: Root = DEFAULT_ROOT,
) -> None:
    """Write the curves and hyperparameters of a sweep for `tensorboard --logdir FOLDER`.

    Example:

        sweep export-tensorboard retrieval curves/
    """
    count = Sweep.find(sweep, root=root).export_tensorboard(folder)
    name = near(folder.absolute())
    print_line(f"{counted(count, 'trial')} in {name}: tensorboard --logdir {name}")


def show_result(sweep: Sweep, console: Console) -> None:
    """Print the leaderboard of a sweep, its answer, and where to look next."""
    summary = sweep.summary()
    workspace = sweep.workspace
    usual = workspace.paths.root == DEFAULT_ROOT.absolute()
    root = "" if usual else f" --root {near(workspace.paths.root)}"
    best = summary.chosen.row.key if summary.chosen else ""
    written = workspace.paths.report(sweep.id) / "report.html"
    directions = terminal.Directions(
        tracking=workspace.tracking_server or f"{_COMMAND} ui{root}",
        report=near(written) if written.exists() else None,
        evaluate=f"{_COMMAND} evaluate {best}{root}",
    )
    terminal.show(summary, directions, console)
