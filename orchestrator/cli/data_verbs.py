"""The verbs `data list`, `data fetch` and `data check`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from orchestrator.api import data_sets as api
from orchestrator.cli.options import Data, Json
from orchestrator.cli.printing import print_json, print_line
from orchestrator.errors import BadInput
from orchestrator.output import Console
from orchestrator.report import words
from orchestrator.storage.paths import DEFAULT_DATA

_LINE_EVERY_SECONDS = 15.0

data_app = typer.Typer(
    help="""List, download and check data sets.

    Every task looks in one data folder: `--data`, else the variable SWEEP_DATA, else `data/`. Some tasks are
    generated and need no files; the others name the files that are missing.
    """,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

TaskName = Annotated[str, typer.Argument(metavar="TASK", help="Task from `data list`.")]


@data_app.command("list")
def list_tasks(data: Data = DEFAULT_DATA, as_json: Json = False) -> None:
    """List every task with the data it would use now, and where its published files come from.

    A task is *here* (its published files are in the data folder), *generated* (it needs none), or *missing*
    (`data fetch TASK` fetches them).

    Example:

        sweep data list
    """
    states = api.states(data)
    if as_json:
        print_json({name: _as_json(api.task_named(name), state) for name, state in states.items()})
        return
    table = Table(box=None, pad_edge=False)
    for column in ("task", "data", "size", "what"):
        table.add_column(column, no_wrap=column != "what")
    for name, state in states.items():
        size = megabytes(state.bytes) if state.bytes else ""
        what = state.source.phrase if state.source else api.task_named(name).title
        table.add_row(name, _word(state), size, what)
    Console(soft_wrap=True).print(table)
    for name in states:
        for remote in api.task_named(name).remotes:
            print_line(f"{name}: {_published(remote)}")
    print_line(f"data folder: {data.absolute()}")


@data_app.command("fetch")
def fetch(
    task: TaskName,
    data: Data = DEFAULT_DATA,
    given: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="PATH", help="Local file, or its folder, to use instead of a download."
        ),
    ] = None,
    sha256: Annotated[
        str | None,
        typer.Option("--sha256", help="SHA-256 of the local file if it is not the published archive."),
    ] = None,
) -> None:
    """Fetch the published files of a task into the data folder.

    The download resumes where an earlier one ended. Its SHA-256 is verified before anything is unpacked, and
    the result is moved into place atomically. If no checksum is published, the one of the first download is
    printed and recorded, and later downloads must match it.

    Without a network: put the file where the error says, or name it with `--from`, and run this again.

    Example:

        sweep data fetch text
    """
    named = api.task_named(task)
    if not named.remotes and given is None and sha256 is None:
        print_line(f"{task}: generated; nothing to fetch")
    with _bar(Console(soft_wrap=True, highlight=False)) as report:
        for remote, result in api.fetch(named, data, report, given=given, sha256=sha256):
            print_line(_fetched(remote, result, sha256))


@data_app.command("check")
def check(
    task: TaskName,
    data: Data = DEFAULT_DATA,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Option of the task, as in the section `data`."),
    ] = None,
    encode: Annotated[
        bool, typer.Option("--encode", help="Also read every row and print the sizes of the splits.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the data that a task would use: files, sizes and checksums; with `--encode`, read every row.

    Missing or damaged data is reported on one line with file, row and remedy; the exit code is 2.

    Example:

        sweep data check listops --set length=512 --encode
    """
    named = api.task_named(task)
    chosen = dict(_option(named, text) for text in options or ())
    if encode:
        with _bar(Console(stderr=True, highlight=False)) as report:
            checked = api.check(named, data, chosen, report)
    else:
        checked = api.check(named, data, chosen)
    if as_json:
        print_json(_checked(checked))
        return
    for line in _lines(named, checked):
        print_line(line)


def _option(task: api.Task, text: str) -> tuple[str, Any]:
    """Read NAME=VALUE by the type of the option's default; an unknown name is left to the task."""
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput("--set", "must be NAME=VALUE", repr(text), f"For example --set {name}=1.")
    option = task.options.get(name)
    return name, _value(type(option.default), value) if option else value


def _value(kind: type, text: str) -> Any:
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return kind(text)
    except ValueError:
        return text


def _word(state: api.State) -> str:
    if state.source is None:
        return "missing"
    return "here" if state.source.files else "generated"


def _as_json(task: api.Task, state: api.State) -> dict[str, Any]:
    return {
        "data": _word(state),
        "source": state.source.phrase if state.source else None,
        "bytes": state.bytes,
        "missing": state.missing,
        "published": [
            {"url": remote.url, "bytes": remote.size, "sha256": remote.sha256} for remote in task.remotes
        ],
    }


def _published(remote: api.Remote) -> str:
    """Return the address, the size and the checksum of a published file."""
    size = f"{remote.size:,} bytes" if remote.size else "no size published"
    return f"{remote.url}, {size}, {f'SHA-256 {remote.sha256}' if remote.sha256 else 'no published checksum'}"


def _fetched(remote: api.Remote, result: api.Fetched, given: str | None) -> str:
    if result.sha256 is None:
        return f"{result.place}: already present"
    unpublished = (
        "no published checksum; recorded for the next fetch" if given is None else "as given by --sha256"
    )
    origin = "as published" if result.pinned else unpublished
    return f"{result.place}: fetched {remote.name}, SHA-256 {result.sha256} ({origin})"


def _checked(checked: api.CheckedData) -> dict[str, Any]:
    source, loaded = checked.source, checked.loaded
    about: dict[str, Any] = {
        "source": source.phrase,
        "comparable": source.comparable,
        "note": source.note,
        "files": [
            {"path": str(file.path), "files": file.files, "bytes": file.bytes, "sha256": file.sha256}
            for file in checked.files
        ],
    }
    if loaded is None:
        return about
    splits = {"train": loaded.train, "validation": loaded.validation, "test": loaded.test}
    return {
        **about,
        "note": loaded.note,
        "digest": loaded.digest,
        "chance": dict(loaded.chance),
        "trivial_loss": dict(loaded.trivial_loss),
        "sizes": {name: len(split) for name, split in splits.items()},
    }


def _lines(task: api.Task, checked: api.CheckedData) -> Iterator[str]:
    source, loaded = checked.source, checked.loaded
    yield f"{task.name}: {source.phrase}"
    for file in checked.files:
        many = f"{file.files:,} files, " if file.files != 1 else ""
        sha256 = f", SHA-256 {file.sha256}" if file.sha256 else ""
        yield f"  {file.path}: {many}{file.bytes:,} bytes{sha256}"
    for remote in task.remotes:
        yield f"  published: {_published(remote)}"
    if loaded is not None:
        sizes = f"{len(loaded.train):,} / {len(loaded.validation):,} / {len(loaded.test):,}"
        yield f"  train / validation / test: {sizes}"
        yield f"  best constant answer: {task.metric} {words.number(loaded.chance['test'])} on test"
        yield f"  content SHA-256 {loaded.digest}"
    note = loaded.note if loaded is not None else source.note
    if note:
        yield f"  {note}"


def megabytes(size: int) -> str:
    """Return a number of bytes in MB, or in GB from a thousand of them."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


@contextmanager
def _bar(console: Console) -> Iterator[api.Progress]:
    """Show progress as a bar on a terminal, and as an occasional line elsewhere."""
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
    """Prints an occasional line of progress where no terminal shows a bar."""

    def __init__(self, console: Console) -> None:
        self._console, self._last = console, time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._last >= _LINE_EVERY_SECONDS:
            self._last = time.monotonic()
            self._console.print(f"{what}: {done:,} of {total:,}", markup=False)
