"""Verbs about the results of sweeps and trials."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.api.local_sweep import Sweep
from orchestrator.api.trial import Trial
from orchestrator.api.workspace import DEFAULT_DATA, DEFAULT_ROOT, Workspace, check_output
from orchestrator.cli.options import Data, Json, Root, Server, SweepId, TrialName, backend_of, trial_name
from orchestrator.cli.printing import print_json, print_line
from orchestrator.driver import submitted_sweep
from orchestrator.errors import counted
from orchestrator.output import Console
from orchestrator.report.words import near


def report(
    sweep: SweepId,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="File of the page. [default: in the root]"),
    ] = None,
    root: Root = DEFAULT_ROOT,
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
    file = output or Workspace.at(root).paths.report(sweep_id) / "report.html"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(page)
    if server is None:
        show_result(Sweep.find(sweep_id, root=root), Console(soft_wrap=True))
    print_line(f"report: {near(file.absolute())}")


def export_study(
    sweep: SweepId,
    file: Annotated[Path, typer.Argument(help="New SQLite file.")],
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
    folder: Annotated[Path, typer.Argument(help="New folder.")],
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
    """Print the leaderboard of a sweep, its answer, and the commands that show more."""
    with sweep.workspace.ledger() as ledger:
        submitted_sweep.show_result(ledger, sweep.workspace.paths, sweep.id, console)


def evaluate(
    trial: TrialName, data: Data = DEFAULT_DATA, root: Root = DEFAULT_ROOT, as_json: Json = False
) -> int:
    """Evaluate the best checkpoint of a trial again, on validation, and compare with the recorded numbers.

    The evaluation runs on the CPU: the numbers of a trial that a GPU trained are equal up to rounding.

    Exit codes: 0 equal to the last digit, 1 not equal.

    Example:

        sweep evaluate retrieval-laptop-1a2b3c4d-7
    """
    selected = Trial.named(trial_name(trial), root=root, data=data)
    answer = selected.evaluate()
    console = Console(soft_wrap=True, highlight=False)
    if as_json:
        print_json(
            {"trial": selected.key, **asdict(answer), "equal": answer.equal, "guarantee": answer.guarantee}
        )
        return int(not answer.equal)
    for name, value in answer.metrics.items():
        console.print(f"val/{name} {value!r} (recorded {answer.recorded[name]!r})")
    console.print("equal to the last digit" if answer.equal else "NOT equal to what training recorded")
    console.print(f"guaranteed: {answer.guarantee}")
    return int(not answer.equal)


def export(
    trial: TrialName,
    to: Annotated[Path | None, typer.Option("--to", help="New folder. [default: exports/TRIAL]")] = None,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Write a folder from which another machine trains a trial again, and say when its curve is equal.

    It is trained by programs of the recorded sizes. Of a function or a command, the folder holds the files of
    its best checkpoint.

    Example:

        sweep export retrieval-laptop-1a2b3c4d-7
    """
    selected = Trial.named(trial_name(trial), root=root)
    folder = (to or Path("exports") / selected.key).absolute()
    for note in selected.export(folder):
        print_line(note)
    what = "what it has saved" if selected.runs_script else "train it again with ./run.sh --data DATA"
    print_line(f"{near(folder)}: {what}")
