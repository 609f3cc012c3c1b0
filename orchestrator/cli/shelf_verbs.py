"""Verbs that archive, delete and annotate sweeps."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from orchestrator.cli.options import Json, OneTrial, Root, Server, SweepId, backend_of
from orchestrator.cli.printing import note_lines, print_answer, print_json, print_line
from orchestrator.errors import BadInput, counted
from orchestrator.report.words import gibibytes
from orchestrator.storage.paths import DEFAULT_ROOT

Undo = Annotated[bool, typer.Option("--undo", help="Restore the sweep.")]


def archive(
    sweep: SweepId,
    undo: Undo = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Hide a sweep from lists; `list --archived` shows it.

    Example:

        sweep archive retrieval
        sweep archive retrieval --undo
    """
    entry = backend_of(server, root).shelve(sweep, None if undo else "archived")
    print_answer(entry, f"{entry.id}: {'listed again' if undo else 'archived'}.", as_json=as_json)


def delete(
    sweep: SweepId,
    undo: Undo = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without confirmation.")] = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Delete a sweep with its checkpoints, MLflow runs and files, which the next `gc --delete` removes.

    It prints the size and what refers to the sweep, and asks for confirmation. Until `gc --delete`, `--undo`
    restores the sweep.

    Example:

        sweep delete retrieval
        sweep delete retrieval --undo
    """
    backend = backend_of(server, root)
    if undo:
        print_line(f"{backend.shelve(sweep, None).id}: listed again.")
        return
    found = backend.deletion(sweep)
    if as_json:
        print_json(asdict(found))
    else:
        runs = counted(found.mlflow_runs, "run of MLflow", "runs of MLflow")
        trials, files = counted(found.trials, "trial"), counted(found.files, "file")
        print_line(f"{found.id}: {trials}, {gibibytes(found.bytes)} in {files}, {runs}")
        for phrase in found.referred_by:
            print_line(f"  {phrase}")
    if not yes:
        if not sys.stdin.isatty():
            raise BadInput("delete", "must be confirmed", "no terminal", "Repeat the command with --yes.")
        typer.confirm("Delete it?", abort=True)
    backend.shelve(found.id, "deleted")
    if not as_json:
        print_line(f"{found.id}: deleted; `gc --delete` removes its files, `delete --undo` brings it back.")


def note(
    sweep: SweepId,
    trial: OneTrial = None,
    text: Annotated[
        str | None, typer.Option("--text", help="New text in Markdown; an empty one removes it.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Tag to add; repeat it for more.")] = None,
    untag: Annotated[list[str] | None, typer.Option("--untag", help="Tag to remove.")] = None,
    favourite: Annotated[
        bool | None, typer.Option("--favourite/--no-favourite", help="Mark it, or remove the mark.")
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Change the note, the tags or the mark of a sweep or a trial, also while it runs, and show them.

    Example:

        sweep note retrieval --text "Baseline of table 2" --tag baseline --favourite
        sweep note retrieval 7 --text "Loss spikes at step 400"
    """
    backend = backend_of(server, root)
    if text is None and not tag and not untag and favourite is None:
        found = (
            backend.status(sweep).note
            if trial is None
            else backend.trial(f"{backend.status(sweep).id}-{trial}").note
        )
    else:
        found = backend.note(sweep, trial, text=text, add=tag or (), remove=untag or (), favourite=favourite)
    if as_json:
        print_json(None if found is None else asdict(found))
        return
    for line in note_lines(found):
        print_line(line)
