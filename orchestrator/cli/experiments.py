"""Verb that runs a published table or figure and writes its pages."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Timer
from typing import Annotated

import typer

from orchestrator.api.clusters import available
from orchestrator.api.local_sweep import Sweep
from orchestrator.api.workspace import Workspace
from orchestrator.cli.local_runs import follow_submitted, run_here, service_for, submit_sweep, with_root_of
from orchestrator.cli.options import with_options
from orchestrator.cli.printing import print_line
from orchestrator.cli.run_options import Profile, RunOptions
from orchestrator.errors import BadInput, Exit, counted
from orchestrator.experiment import experiment_page, publishing
from orchestrator.experiment import file as files
from orchestrator.experiment.dry_run import dry_run as rehearse
from orchestrator.experiment.runner import Start, folder_of, results, run, sweep_of
from orchestrator.report.words import near

INDEX = "results.md"
"""Name of the list of results, beside their folder."""

CALL_SECONDS = 480.0
"""Seconds of a call with `--gpu` before it saves and ends, so that it takes less than ten minutes in all."""

FOLDER = Path("experiments")
"""Folder in which an experiment is looked for by its name."""


@dataclass(frozen=True)
class ExperimentOptions:
    """The options of `experiment` alone; each field is an option."""

    profile: Profile = None
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only validate every arm and take one training step of each."),
    ] = False
    pages_only: Annotated[
        bool,
        typer.Option("--pages", help="Only write the pages of finished arms."),
    ] = False
    publish: Annotated[
        Path | None,
        typer.Option(
            "--publish", metavar="FOLDER", help="Also publish the results here, such as docs/experiments."
        ),
    ] = None
    index: Annotated[
        Path | None,
        typer.Option(
            "--index", metavar="FOLDER", help="Write the index of the published results in this folder."
        ),
    ] = None
    arms: Annotated[
        str | None,
        typer.Option(
            "--only", "--arms", metavar="NAMES", help="Run only these arms, such as `lds-300,lstm-300`."
        ),
    ] = None
    gpu: Annotated[
        bool,
        typer.Option(
            "--gpu",
            help="Train at the published size in this process, on a GPU of this machine. It saves after eight"
            " minutes; repeat the command to continue.",
        ),
    ] = False
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override resources of a trial, such as `resources.gpu=1/4`; repeatable.",
        ),
    ] = None


@with_options(asked=ExperimentOptions, options=RunOptions)
def experiment(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Experiment file, such as experiments/ldstack-copy.yaml, or its name."
        ),
    ] = None,
    *,
    asked: ExperimentOptions,
    options: RunOptions,
) -> int:
    """Run the sweeps of an experiment file, one after another, and write its pages.

    The same command continues an interrupted experiment; once every arm has ended, it only writes the pages.
    If a service runs for the root, all arms are submitted to it, and it may run several at a time. `--only`
    runs some arms; the pages show all of them, and publishing keeps the published results of the others.
    `--gpu` trains on a GPU that is available for some minutes at a time; `--dry-run` and `--pages` need none.
    `--set` changes the resources of a trial on this machine, such as its share of a GPU, and does not change
    the identity of the experiment.

    Exit codes: 0 complete, 2 bad input, 3 an arm was skipped or has failed trials, 4 interrupted and
    resumable, 5 still running.

    Example:

        sweep experiment experiments/ldstack-copy.yaml --profile laptop
        sweep experiment rotrnn-table-1 --only listops-bidirectional --gpu
    """
    code: int = Exit.COMPLETE
    if file is None and asked.index is None:
        raise BadInput("experiment", "requires a FILE or `--index`", "neither", "Name an experiment file.")
    if file is not None:
        code = _run(file, asked, options)
    if asked.index is not None:
        publishing.refresh(asked.index)
        target = asked.index.parent / INDEX
        target.write_text(publishing.index(asked.index), encoding="utf-8")
        print_line(f"Results: {near(target.absolute())}")
    return code


def _run(file: Path, asked: ExperimentOptions, options: RunOptions) -> int:
    """Run the arms of an experiment file, unless only a dry run or its pages were asked for."""
    hardware = available(root=options.root)
    if asked.gpu:
        options = replace(options, here=True, detach=False)
        if not (hardware.gpus or asked.dry_run or asked.pages_only):
            remedy = "Use a machine with one, add `--dry-run`, or choose a smaller size with `--profile`."
            raise BadInput("--gpu", "requires a GPU", f"{hardware.gpus} GPUs", remedy)
    size = asked.profile or ("full" if asked.gpu else "auto")
    loaded = files.load(_named(file), profile=size, gpus=hardware.gpus, overrides=asked.overrides or ())
    chosen = loaded if asked.arms is None else files.selected(loaded, asked.arms.split(","))
    if asked.dry_run:
        _dry_run(chosen, options)
        return Exit.COMPLETE
    code: int = Exit.COMPLETE
    options = with_root_of(service_for(options), options)
    workspace = Workspace.at(options.root, options.data)
    if not asked.pages_only:
        with ended_after(CALL_SECONDS if asked.gpu else None):
            code = run(chosen, workspace, _start(chosen, options), print_line, hardware=hardware)
    _write_pages(loaded, workspace, asked.publish)
    return code


@contextmanager
def ended_after(seconds: float | None) -> Iterator[None]:
    """Send SIGTERM to this process if the block takes longer: a driver then saves its trials and returns."""
    if seconds is None:
        yield
        return
    timer = Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _named(file: Path) -> Path:
    """Return the file that a path or the name of an experiment stands for."""
    known = FOLDER / f"{file}.yaml"
    return known if not file.exists() and len(file.parts) == 1 and known.exists() else file


def _start(loaded: files.Experiment, options: RunOptions) -> Start:
    """Return the function that runs an arm, in this process or in the service, which gets all arms."""
    server = service_for(options)
    if server is None:
        return lambda sweep: run_here(sweep, options)
    workspace = Workspace.at(options.root, options.data)
    if loaded.measure is None:
        for arm in loaded.arms:
            sweep = sweep_of(arm, workspace)
            if not sweep.is_finished:
                submit_sweep(sweep, options)

    def follow(sweep: Sweep) -> int:
        return follow_submitted(sweep.id, options.root)

    return follow


def _dry_run(loaded: files.Experiment, options: RunOptions) -> None:
    compilations = Workspace.at(options.root, options.data).paths.compilations
    print_line(f"{loaded.id}: valid, {counted(len(loaded.arms), 'arm')} of {counted(loaded.seeds, 'seed')}")
    for line in rehearse(loaded, compilations):
        print_line(line)


def _write_pages(loaded: files.Experiment, workspace: Workspace, folder: Path | None) -> None:
    present = results(loaded, workspace)
    pages = publishing.write(present, folder_of(loaded, workspace))
    for arm in present.arms:
        print_line(f"{arm.name}: {experiment_page.measured(arm)}; {present.verdicts[arm.name].phrase}")
    for claim, verdict in zip(present.claims, present.orders, strict=True):
        print_line(f"{claim.better} is better than {claim.than}: {verdict.phrase}")
    print_line(f"Pages: {near(pages.html)}, {near(pages.markdown)}")
    if folder is not None:
        data, text = publishing.publish(present, folder)
        print_line(f"Published: {near(data.absolute())}, {near(text.absolute())}")
