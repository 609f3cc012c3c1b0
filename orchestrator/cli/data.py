"""The verbs `data list`, `data fetch` and `data check`."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from orchestrator.cli.options import DEFAULT_DATA, Data, Json
from orchestrator.config.validation_errors import nearest
from orchestrator.data.fetching import fetch as fetched
from orchestrator.data.inventory import Holding, State, holdings, state
from orchestrator.errors import BadInput
from trainables.data.remote import Remote
from trainables.data.task import Progress as Report
from trainables.data.task import Source, Task, TaskData
from trainables.settings import Option
from trainables.tasks import TASKS

_LINE_EVERY_SECONDS = 15.0

data_app = typer.Typer(
    help="""What data sets are here, where they come from, and bringing them here.

    Every task looks in one data folder: `--data`, else the variable SWEEP_DATA, else `data/`. Some tasks are
    generated and need nothing; the others say which files they miss.
    """,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Name = Annotated[str, typer.Argument(metavar="TASK", help="A task, as `data list` names it.")]


@data_app.command("list")
def list_tasks(data: Data = DEFAULT_DATA, as_json: Json = False) -> None:
    """List every task: what it is, which data it would use now, and where published files come from.

    A task is *here* (its published files are in the data folder), *generated* (it needs none), or *missing*
    (`data fetch TASK` brings it).
    """
    states = {name: state(task, {}, data) for name, task in TASKS.items()}
    console = Console(soft_wrap=True)
    if as_json:
        console.print_json(json.dumps({name: _as_json(TASKS[name], found) for name, found in states.items()}))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("task", "data", "size", "what"):
        table.add_column(column, no_wrap=column != "what")
    for name, found in states.items():
        size = megabytes(found.bytes) if found.bytes else ""
        table.add_row(name, _word(found), size, found.source.phrase if found.source else TASKS[name].title)
    console.print(table)
    for name, task in TASKS.items():
        for remote in task.remotes:
            console.print(f"{name}: {_published(remote)}", markup=False, highlight=False)
    console.print(f"data folder: {data.absolute()}", markup=False, highlight=False)


@data_app.command("fetch")
def fetch(
    task: Name,
    data: Data = DEFAULT_DATA,
    given: Annotated[
        Path | None,
        typer.Option("--from", metavar="PATH", help="A file you have, or its folder, instead of a download."),
    ] = None,
    sha256: Annotated[
        str | None,
        typer.Option(help="The sum that the file of --from has, if it is not the published archive."),
    ] = None,
) -> None:
    """Bring a task's published files into the data folder.

    Downloads with a progress bar, goes on where an earlier attempt ended, verifies the SHA-256 before
    anything is unpacked, and moves the result into place at once. Where no sum is published, the one found is
    printed and kept, and a later fetch must find the same.

    Without a network: put the file where the error says, or name it with `--from`, and run this again.
    """
    found = _task(task)
    console = Console(soft_wrap=True, highlight=False)
    if not found.remotes:
        console.print(f"{task}: generated, there is nothing to fetch", markup=False)
    for remote in found.remotes:
        wanted = _given(remote, given, sha256)
        with _bar(console) as report:
            result = fetched(wanted, data, report, given=given, open_url=urllib.request.urlopen)
        console.print(_fetched(wanted, result.sha256, result.place, pinned=result.pinned), markup=False)


@data_app.command("check")
def check(
    task: Name,
    data: Data = DEFAULT_DATA,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An option of the task, as in `data:` of a file."),
    ] = None,
    encode: Annotated[
        bool, typer.Option("--encode", help="Read every row too, and say what the splits are.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what data a task would use: files, sizes and sums; with `--encode`, read all of it.

    Missing or damaged data is one line that names file, row and remedy, and exit code 2.
    """
    found = _task(task)
    chosen = dict(_chosen(found, text) for text in options or ())
    source = found.check(chosen, data)
    console = Console(soft_wrap=True, highlight=False)
    loaded = None
    if encode:
        with _bar(Console(stderr=True, highlight=False)) as report:
            loaded = found.load(chosen, data, report)
    if as_json:
        console.print_json(json.dumps(_checked(source, holdings(source), loaded)))
        return
    for line in _lines(found, source, holdings(source), loaded):
        console.print(line, markup=False)


def _task(name: str) -> Task:
    if name not in TASKS:
        raise BadInput(f"task {name}", "must be a task", repr(name), nearest(name, TASKS))
    return TASKS[name]


def _given(remote: Remote, given: Path | None, sha256: str | None) -> Remote:
    """Return the file as the user vouches for it."""
    if sha256 is None:
        return remote
    if given is None:
        raise BadInput(
            "--sha256", "must go with --from", "--sha256 alone", "A download has its published sum."
        )
    return replace(remote, sha256=sha256.lower(), size=None)


def _chosen(task: Task, text: str) -> tuple[str, Any]:
    """Read NAME=VALUE by the type of the option's default; an unknown name is left to the task."""
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"--set {text}", "must be NAME=VALUE", repr(text), f"For example --set {name}=1.")
    option = task.options.get(name)
    return name, _value(option, value) if option else value


def _value(option: Option, text: str) -> Any:
    kind = type(option.default)
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return kind(text)
    except ValueError:
        return text


def _word(found: State) -> str:
    if found.source is None:
        return "missing"
    return "here" if found.source.files else "generated"


def _as_json(task: Task, found: State) -> dict[str, Any]:
    return {
        "data": _word(found),
        "source": found.source.phrase if found.source else None,
        "bytes": found.bytes,
        "missing": found.missing,
        "published": [
            {"url": remote.url, "bytes": remote.size, "sha256": remote.sha256} for remote in task.remotes
        ],
    }


def _published(remote: Remote) -> str:
    """Say where a file is published, its size and its sum."""
    size = f"{remote.size:,} bytes" if remote.size else "no size published"
    return f"{remote.url}, {size}, {f'SHA-256 {remote.sha256}' if remote.sha256 else 'no sum published'}"


def _fetched(remote: Remote, sha256: str | None, place: Path, *, pinned: bool) -> str:
    if sha256 is None:
        return f"{place}: was there already"
    published = "as pinned" if pinned else "nobody publishes one; kept for the next fetch"
    return f"{place}: fetched {remote.name}, SHA-256 {sha256} ({published})"


def _checked(source: Source, files: list[Holding], loaded: TaskData | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "source": source.phrase,
        "comparable": source.comparable,
        "note": source.note,
        "files": [
            {"path": str(file.path), "files": file.files, "bytes": file.bytes, "sha256": file.sha256}
            for file in files
        ],
    }
    if loaded is not None:
        found |= {
            "note": loaded.note,
            "digest": loaded.digest,
            "chance": dict(loaded.chance),
            "trivial_loss": loaded.trivial_loss,
            "sizes": {
                "train": len(loaded.train),
                "validation": len(loaded.validation),
                "test": len(loaded.test),
            },
        }
    return found


def _lines(task: Task, source: Source, files: list[Holding], loaded: TaskData | None) -> Iterator[str]:
    yield f"{task.name}: {source.phrase}"
    for file in files:
        many = f"{file.files:,} files, " if file.files != 1 else ""
        sha256 = f", SHA-256 {file.sha256}" if file.sha256 else ""
        yield f"  {file.path}: {many}{file.bytes:,} bytes{sha256}"
    for remote in task.remotes:
        yield f"  published: {_published(remote)}"
    if loaded is not None:
        sizes = f"{len(loaded.train):,} / {len(loaded.validation):,} / {len(loaded.test):,}"
        yield f"  train / validation / test: {sizes}"
        yield f"  best constant answer: {task.metric} {loaded.chance['test']:.4f} on test"
        yield f"  content SHA-256 {loaded.digest}"
    note = loaded.note if loaded is not None else source.note
    if note:
        yield f"  {note}"


def megabytes(size: int) -> str:
    """Return a size in MB, or in GB from a thousand of them."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


@contextmanager
def _bar(console: Console) -> Iterator[Report]:
    """Report progress as a bar on a terminal, and as a line now and then anywhere else."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bars: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done, total=total)

        yield report


class _Lines:
    """Prints progress where nobody watches: seldom."""

    def __init__(self, console: Console) -> None:
        self._console, self._last = console, time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._last >= _LINE_EVERY_SECONDS:
            self._last = time.monotonic()
            self._console.print(f"{what}: {done:,} of {total:,}", markup=False)
