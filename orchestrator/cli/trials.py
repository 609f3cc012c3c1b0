"""The verbs about one trial: `show`, `logs`, `evaluate`, `export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.api.trial import Trial
from orchestrator.api.workspace import DEFAULT_DATA, DEFAULT_ROOT
from orchestrator.cli import remote
from orchestrator.cli.display import print_json, print_line
from orchestrator.cli.options import Data, Json, Root, TrialName, trial_name
from orchestrator.cli.remote import Server
from orchestrator.output import Console, write, write_raw
from orchestrator.report.words import brief, near, numbers


def show(trial: TrialName, root: Root = DEFAULT_ROOT, as_json: Json = False, server: Server = None) -> None:
    """Show everything that the ledger knows of a trial: hyperparameters, attempts, reports, checkpoints.

    Example:

        sweep show 7
    """
    if server is not None:
        remote.show(server, trial_name(trial), as_json=as_json)
        return
    selected = Trial.named(trial_name(trial), root=root)
    history = selected.history()
    if as_json:
        print_json(asdict(history))
        return
    console = Console(soft_wrap=True, highlight=False)
    row = history.trial
    cause = f" ({row.cause})" if row.cause else ""
    console.print(f"{row.key}: {row.state}{cause}, step {row.step} of {row.total_steps}", markup=False)
    for name, value in row.params.items():
        console.print(f"  {name} = {value}", markup=False)
    for attempt in history.attempts:
        node = f" on {attempt.node}" if attempt.node else ""
        line = f"  attempt {attempt.number}: {attempt.state}{node} {attempt.cause or ''}"
        console.print(line.rstrip(), markup=False)
    for line in selected.code_changes():
        console.print(f"  {line}", markup=False)
    unshown = selected.unshown_metrics
    names = dict.fromkeys(
        name for report in history.reports for name in report.metrics if name not in unshown
    )
    curves = {
        name: numbers([report.metrics.get(name) for report in history.reports], brief) for name in names
    }
    for index, report in enumerate(history.reports):
        metrics = ", ".join(f"{name} {curves[name][index]}" for name in names if name in report.metrics)
        console.print(f"  step {report.step}: {metrics}", markup=False)
    for saved in history.checkpoints:
        console.print(f"  checkpoint ({saved.kind}): {saved.path}", markup=False)


def logs(
    trial: TrialName,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Write what a terminal would execute as it is, to a file or a pipe only."),
    ] = False,
    root: Root = DEFAULT_ROOT,
    server: Server = None,
) -> None:
    """Print the log of a trial's workers, tracebacks included; for other machines, what the ledger knows.

    Characters that a terminal would execute are shown escaped.

    Example:

        sweep logs retrieval 7
    """
    show = write_raw if raw else write
    if server is not None:
        remote.logs(server, trial_name(trial), show)
        return
    log = Trial.named(trial_name(trial), root=root).log()
    console = Console(soft_wrap=True, highlight=False)
    show(log.text)
    for line in log.elsewhere:
        console.print(line, markup=False)
    if log.nodes:
        nodes = ", ".join(log.nodes)
        line = f"The attempts on {nodes} come from the ledger; the logs on those machines hold tracebacks."
        Console(stderr=True, soft_wrap=True).print(line, markup=False)


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
    to: Annotated[
        Path | None, typer.Option("--to", help="The new folder; `exports/TRIAL` if left out.")
    ] = None,
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
