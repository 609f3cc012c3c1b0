"""The verb `run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestrator import driver, hardware
from orchestrator.cli.options import DEFAULT_DATA, DEFAULT_ROOT, Data, Root, paths
from orchestrator.cli.progress import Watch
from orchestrator.report import report
from orchestrator.spec import load


def run(
    file: Annotated[Path, typer.Argument(help="A search-space file, such as search_spaces/retrieval.yaml.")],
    profile: Annotated[
        str | None,
        typer.Option(help="A profile of the file; `full` for none. Without a GPU: `laptop`."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one key: `--set training.steps=1000`."),
    ] = None,
    data: Data = DEFAULT_DATA,
    root: Root = DEFAULT_ROOT,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the result alone.")] = False,
) -> int:
    """Run the sweep of FILE, or resume it where it stopped.

    Exit codes: 0 complete, 2 bad input, 3 some trials failed, 4 interrupted and resumable.
    """
    here = hardware.detect()
    sweep = load(file, profile=profile or "auto", overrides=tuple(overrides or ()), gpus=here.gpus)
    if profile is None:
        hardware.require_gpu_jax(here)
    run_here = driver.Run(paths(root), data, here)
    watch = Watch(Console(soft_wrap=True), sweep.metric, quiet)
    driver.check(sweep, run_here)
    if sweep.profile:
        why = f"this machine has {here.gpus} GPUs" if profile is None else "asked for"
        watch.say(f"Profile `{sweep.profile}` ({why}): smaller than the paper's; `--profile full` insists.")
    code = driver.drive(sweep, run_here, watch)
    report.show(sweep.id, run_here.paths, watch.console)
    return code
