"""The verbs about sweeps of the service: `submit`, `pause` and `release`."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.api import queue, service
from orchestrator.api.workspace import DEFAULT_ROOT
from orchestrator.cli import remote, submission
from orchestrator.cli.display import print_line
from orchestrator.cli.options import Root, SweepId
from orchestrator.cli.remote import Server
from orchestrator.cli.run import chosen
from orchestrator.cli.run_options import File, Overrides, Profile, Resume, RunOptions, with_run_options
from orchestrator.errors import Exit


@with_run_options
def submit(
    file: File,
    profile: Profile = None,
    overrides: Overrides = None,
    new: Annotated[bool, typer.Option("--new", help="Submit another sweep of the same file.")] = False,
    resume: Resume = False,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Identifies the submission: repeating it with the same key adds nothing."),
    ] = None,
    server: Server = None,
    *,
    options: RunOptions,
) -> int:
    """Hand the sweep of a search-space file to the service without following it.

    Without a service the sweep waits until one is started.

    Example:

        sweep submit search_spaces/listops.yaml --key listops-monday
    """
    if server is not None:
        return remote.submit(server, file, profile=profile, overrides=overrides or (), new=new, key=key)
    running = service.running(root=options.root)
    options = submission.with_root_of(running, options)
    sweep = chosen(file, profile, overrides, options, new=new, resume=resume)
    sweep_id, _ = submission.submit(sweep, options, new=new, key=key)
    print_line(sweep_id)
    if running is None:
        print_line("No service runs for this root: `serve` starts one, which then starts the sweep.")
    return Exit.COMPLETE


def pause(sweep: SweepId, root: Root = DEFAULT_ROOT, server: Server = None) -> None:
    """Have a sweep of the service save every trial and leave its place until it is resumed.

    It stays paused when the service or the machine is started again; `resume` goes on.

    Example:

        sweep pause listops
    """
    if server is not None:
        remote.pause(server, sweep)
        return
    sweep_id, _ = queue.change(sweep, paused=True, root=root)
    print_line(f"{sweep_id}: is asked to save its trials and wait.")


def release(sweep: SweepId, root: Root = DEFAULT_ROOT, server: Server = None) -> None:
    """Queue a sweep again that was parked after several crashes.

    Example:

        sweep release listops
    """
    if server is not None:
        remote.release(server, sweep)
        return
    print_line(f"{service.release(sweep, root=root)}: QUEUED")
