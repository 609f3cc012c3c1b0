"""Data sets of the tasks: their states, their sources, and their download."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.document import nearest
from orchestrator.data.fetching import Fetched
from orchestrator.data.fetching import fetch as fetch_file
from orchestrator.data.inventory import State, StoredPath, state, stored_paths
from orchestrator.errors import BadInput
from trainables.data.task import Progress, Remote, Source, Task, TaskData
from trainables.tasks import TASKS

__all__ = [
    "CheckedData",
    "Fetched",
    "Progress",
    "Remote",
    "State",
    "Task",
    "check",
    "fetch",
    "states",
    "task_named",
]


@dataclass(frozen=True)
class CheckedData:
    """The data of a task.

    Attributes:
        source: Source of the examples.
        files: Files of the source, with sizes and checksums.
        loaded: Encoded data set, or None if it was not encoded.
    """

    source: Source
    files: Sequence[StoredPath]
    loaded: TaskData | None


def task_named(name: str) -> Task:
    """Return the task with a name.

    Raises:
        BadInput: The task does not exist.
    """
    if name not in TASKS:
        raise BadInput(f"task {name}", "is unknown", "", nearest(name, TASKS))
    return TASKS[name]


def states(folder: Path) -> dict[str, State]:
    """Return the data state of each task by name: present, generated or missing.

    Args:
        folder: Folder of the data sets.
    """
    return {name: state(task, {}, folder) for name, task in TASKS.items()}


def fetch(
    task: Task,
    folder: Path,
    progress: Progress,
    *,
    given: Path | None = None,
    sha256: str | None = None,
) -> Iterator[tuple[Remote, Fetched]]:
    """Download the published files of a task, one after the other.

    An interrupted download is resumed. Its SHA-256 is verified before it is unpacked, and the result replaces
    the target atomically. Without a published checksum, that of the first download is stored and verified
    later.

    Args:
        task: Task; one with generated data needs no files.
        folder: Folder of the data sets.
        progress: Receives the present activity with its progress.
        given: File of the user, or its folder, instead of a download.
        sha256: Checksum of that file, if it differs from the published one.

    Raises:
        BadInput: `sha256` was given without `given`, or `given` for a task without files.
        BadData: A download fails, or a file differs from the published one.
    """
    if sha256 is not None and given is None:
        must = "requires a file to verify"
        raise BadInput("sha256", must, "", "Name the file: given=PATH, or --from PATH.")
    if given is not None and not task.remotes:
        remedy = "Leave the file out."
        raise BadInput(f"task {task.name}", "generates its data and reads no files", "", remedy)
    for remote in task.remotes:
        open_url = urllib.request.urlopen
        yield remote, fetch_file(remote, folder, progress, given=given, sha256=sha256, open_url=open_url)


def check(
    task: Task, folder: Path, options: Mapping[str, Any], progress: Progress | None = None
) -> CheckedData:
    """Return the data of a task.

    Args:
        task: The task.
        folder: Folder of the data sets, whose cache receives the encoded data set.
        options: Options of the task, as in the section `data` of a search-space file.
        progress: Receives the progress of encoding and reading every row; if None, nothing is encoded.

    Raises:
        BadData: The data is missing or damaged.
        Refusal: An option is wrong.
    """
    source = task.check(options, folder)
    loaded = task.load(options, folder, progress) if progress else None
    return CheckedData(source, stored_paths(source), loaded)
