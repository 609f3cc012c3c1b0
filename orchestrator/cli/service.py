"""The verbs of the service: `serve`, `submit`, `release`, and `drive`, which the service calls."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from orchestrator.api import service
from orchestrator.api.sweep import Sweep
from orchestrator.api.workspace import DEFAULT_ROOT
from orchestrator.cli import submission
from orchestrator.cli.display import print_line
from orchestrator.cli.options import Root, SweepId
from orchestrator.cli.run import load, run_here
from orchestrator.cli.run_options import NOTIFY, File, Overrides, Profile, RunOptions, with_run_options
from orchestrator.errors import Exit


def serve(
    drivers: Annotated[
        int, typer.Option("--drivers", metavar="N", help="Most sweeps that are driven at once.")
    ] = service.DRIVERS_AT_ONCE,
    stop_drivers: Annotated[
        bool,
        typer.Option(
            "--stop-drivers",
            help="When the service is ended, let its drivers save their trials and end too: for a container"
            " or a batch job.",
        ),
    ] = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Run the service of a root: start the driver of each submitted sweep, and start it again after a crash.

    It runs until SIGTERM or Ctrl-C. The drivers go on without it, and the next service finds them.

    Exit codes: 0 ended, 4 ended with its drivers (`--stop-drivers`), 6 another service supervises the ledger.

    Example:

        sweep serve
    """
    return service.serve(print_line, drivers=drivers, stop_drivers=stop_drivers, root=root)


@with_run_options
def submit(
    file: File,
    profile: Profile = None,
    overrides: Overrides = None,
    new: Annotated[bool, typer.Option("--new", help="Submit another sweep of the same file.")] = False,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Identifies the submission: repeating it with the same key adds nothing."),
    ] = None,
    *,
    options: RunOptions,
) -> int:
    """Hand the sweep of a search-space file to the service without following it.

    Without a service the sweep waits until one is started.

    Example:

        sweep submit search_spaces/listops.yaml --key listops-monday
    """
    server = service.running(root=options.root)
    options = submission.with_root_of(server, options)
    sweep_id, _ = submission.submit(load(file, profile, overrides, new, options), options, new=new, key=key)
    print_line(sweep_id)
    if server is None:
        print_line("No service runs for this root: `serve` starts one, which then starts the sweep.")
    return Exit.COMPLETE


def release(sweep: SweepId, root: Root = DEFAULT_ROOT) -> None:
    """Queue a sweep again that was parked after several crashes.

    Example:

        sweep release listops
    """
    print_line(f"{service.release(sweep, root=root)}: QUEUED")


def drive(
    sweep: SweepId,
    start: Annotated[int, typer.Option("--start", help="Number of the start, as the service counts.")],
    root: Root = DEFAULT_ROOT,
) -> int:
    """Run a submitted sweep in this process; the service calls this verb.

    Example:

        sweep drive listops-laptop-0a1b2c3d --start 1
    """

    def run(submitted: Sweep, options: Mapping[str, Any]) -> int:
        own = {name: options[name] for name in submission.OF_THE_DRIVER}
        notify = os.environ.get(NOTIFY)
        return run_here(submitted, RunOptions(root=root, unless_stopped=True, notify=notify, **own))

    return service.drive(sweep, start, run, root=root)
