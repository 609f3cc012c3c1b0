"""Verbs that write files of this machine: first search-space files, studies, curves, trained trials."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.api import templates
from orchestrator.api.local_sweep import Sweep
from orchestrator.api.local_trial import Trial
from orchestrator.cli.options import Data, Json, Root, SweepId, TrialName, trial_name
from orchestrator.cli.printing import print_json, print_line
from orchestrator.errors import BadInput, counted
from orchestrator.output import Console
from orchestrator.report.words import near
from orchestrator.storage.paths import DEFAULT_DATA, DEFAULT_ROOT


def init(
    task: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="Name of a search space, such as `listops`.")
    ] = None,
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Folder of the new files.")] = Path(),
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help=f"Write the files of a cluster instead: {', '.join(sorted(templates.CLUSTERS))}.",
        ),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(
            "--script", metavar="FILE", help="Write the search-space file of a Python script, beside it."
        ),
    ] = None,
) -> None:
    """Write a search-space file and its JSON Schema, or the files of a cluster with `--cluster`.

    With `--script train.py`, the file is `train.yaml`, from the options that `argparse`, click or Hydra
    declare, and from what the script reports or prints. The script is read, not run. Without arguments, list
    the search spaces. No checkout of the project is needed.

    Example:

        sweep init --script train.py
    """
    if script is not None:
        if task is not None or cluster is not None:
            remedy = "Leave the task and `--cluster` out."
            raise BadInput("init --script", "must be given alone", f"`{task or cluster}`", remedy)
        written_file, guesses = templates.write_for_script(script)
        for guess in guesses:
            print_line(guess)
        print_line(f"{near(written_file.absolute())} is written. Correct it, then check it with")
        print_line(f"  sweep validate {shlex.quote(near(written_file.absolute()))}")
    elif cluster is not None:
        if folder != Path():
            must = "must be given only a folder"
            raise BadInput("init --cluster", must, f"`{task} {folder}`", "Leave the task out.")
        written = templates.write_cluster(cluster, task or Path())
        for file in written:
            print_line(f"{near(file.absolute())} is written.")
        first = near(written[0].absolute())
        print_line(f"Fill in the values at the top of {first}; its comments describe the next steps.")
    elif task is None:
        print_line("Search spaces: " + ", ".join(templates.tasks()))
    else:
        file, schema = templates.write_search_space(task, folder)
        print_line(f"{near(file.absolute())} is written, with {schema.name} for editors.")
        print_line(f"Run it with: sweep {shlex.quote(near(file.absolute()))}")


def export_study(
    sweep: SweepId,
    file: Annotated[Path, typer.Argument(help="New SQLite file.")],
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Write the study of a sweep as an Optuna storage, which `optuna-dashboard sqlite:///FILE` opens.

    Example:

        sweep export-study retrieval study.db
    """
    count = Sweep.find(sweep, root=root).export_study(file)
    name = near(file.absolute())
    if as_json:
        print_json({"trials": count, "file": str(file.absolute())})
        return
    print_line(f"{counted(count, 'trial')} in {name}: optuna-dashboard sqlite:///{name}")


def export_tensorboard(
    sweep: SweepId,
    folder: Annotated[Path, typer.Argument(help="New folder.")],
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Write the curves and hyperparameters of a sweep for `tensorboard --logdir FOLDER`.

    Example:

        sweep export-tensorboard retrieval curves/
    """
    count = Sweep.find(sweep, root=root).export_tensorboard(folder)
    name = near(folder.absolute())
    if as_json:
        print_json({"trials": count, "folder": str(folder.absolute())})
        return
    print_line(f"{counted(count, 'trial')} in {name}: tensorboard --logdir {name}")


def evaluate(
    trial: TrialName, data: Data = DEFAULT_DATA, root: Root = DEFAULT_ROOT, as_json: Json = False
) -> int:
    """Evaluate the best checkpoint of a trial again on the validation split, and compare the metrics.

    The evaluation runs on the CPU, so the metrics of a trial that a GPU trained are equal up to rounding.

    Exit codes: 0 equal to the last digit, 1 not equal.

    Example:

        sweep evaluate retrieval-laptop-1a2b3c4d-7
    """
    selected = Trial.find(trial_name(trial), root=root, data=data)
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
    as_json: Json = False,
) -> None:
    """Write a folder from which another machine can train a trial again and compare the curves.

    `run.sh` in the folder trains with programs of the recorded sizes. For a function or a command, the folder
    contains its code and the files of its best checkpoint, and `run.sh` runs it again.

    Example:

        sweep export retrieval-laptop-1a2b3c4d-7
    """
    selected = Trial.find(trial_name(trial), root=root)
    folder = (to or Path("exports") / selected.key).absolute()
    notes = selected.export(folder)
    if as_json:
        print_json({"trial": selected.key, "folder": str(folder), "notes": list(notes)})
        return
    for note in notes:
        print_line(note)
    script = "its code and what it has saved; run it again with ./run.sh"
    what = script if selected.runs_script else "train it again with ./run.sh --data DATA"
    print_line(f"{near(folder)}: {what}")
