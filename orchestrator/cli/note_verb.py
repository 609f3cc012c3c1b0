"""Verb that shows and changes the notes of sweeps and trials."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from orchestrator.cli.options import Json, OneTrial, Root, Server, SweepId, backend_of
from orchestrator.cli.printing import note_lines, print_json, print_line
from orchestrator.storage.paths import DEFAULT_ROOT


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
