"""The verbs that hand something on: `export` a trial, a sweep to Optuna's pages or TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.cli.found import sweep_named, trial_named
from orchestrator.cli.options import DEFAULT_ROOT, Root, SweepId, opened
from orchestrator.config import from_document
from orchestrator.errors import BadInput
from orchestrator.export.folder import export as write
from orchestrator.report.words import near


def export(
    trial: Annotated[str, typer.Argument(help="A trial's key, as the leaderboard shows it.")],
    to: Annotated[Path | None, typer.Option(help="The new folder; `exports/TRIAL` if left out.")] = None,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Write a folder that another machine re-creates a trial from: the same curve on the same hardware."""
    ledger = opened(root)
    found = trial_named(ledger, trial)
    folder = to or Path("exports") / found.key
    console = Console(soft_wrap=True, highlight=False)
    for note in write(ledger, found, folder.absolute()):
        console.print(note, markup=False)
    console.print(f"{near(folder.absolute())}: train it again with ./run.sh --data DATA", markup=False)


def export_study(
    sweep: SweepId,
    file: Annotated[Path, typer.Argument(help="The new SQLite file.")],
    root: Root = DEFAULT_ROOT,
) -> None:
    """Write a sweep's study as an Optuna storage, which `optuna-dashboard sqlite:///FILE` opens."""
    ledger = opened(root)
    found = sweep_named(ledger, sweep)
    if file.exists():
        raise BadInput(str(file), "must not be there yet", "a file", "Name another, or remove it.")
    # Optuna takes a second to import: only once all that can be refused at once has been.
    from orchestrator.study.study import Study, store

    text = str(found.facts.get("specification", ""))
    trials = ledger.trials(found.id, role="search")
    study = Study(from_document(found.document, text), trials, ledger.reports(found.id))
    count = store(study, file, found.id)
    Console(soft_wrap=True, highlight=False).print(
        f"{count} trials in {near(file.absolute())}: optuna-dashboard sqlite:///{near(file.absolute())}"
    )


def export_tensorboard(
    sweep: SweepId,
    folder: Annotated[Path, typer.Argument(help="The new folder.")],
    root: Root = DEFAULT_ROOT,
) -> None:
    """Write a sweep's curves and hyperparameters as `tensorboard --logdir FOLDER` reads them."""
    from orchestrator.export.tensorboard import write as write_events  # tensorboardX takes a second to import

    ledger = opened(root)
    count = write_events(ledger, sweep_named(ledger, sweep), folder)
    Console(soft_wrap=True, highlight=False).print(
        f"{count} trials in {near(folder.absolute())}: tensorboard --logdir {near(folder.absolute())}"
    )
