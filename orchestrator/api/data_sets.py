"""The data sets of the tasks: which are here, where the published ones come from, and fetching them."""

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
    """The data that a task would use.

    Attributes:
        source: Where the examples come from.
        files: The files of the source, with sizes and sums.
        loaded: The encoded data set, or None if it was not encoded.
    """

    source: Source
    files: Sequence[StoredPath]
    loaded: TaskData | None


def task_named(name: str) -> Task:
    """Return the task of this name.

    Raises:
        BadInput: There is no such task.
    """
    if name not in TASKS:
        raise BadInput(f"task {name}", "is unknown", "", nearest(name, TASKS))
    return TASKS[name]


def states(folder: Path) -> dict[str, State]:
    """Return for every task by name whether its data is here, generated or missing.

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
    """Bring the published files of a task into a folder, one after the other.

    A download resumes where an earlier one ended. Its SHA-256 is verified before it is unpacked, and the
    result is moved into place whole. If no sum is published, the sum of the first fetch is stored, and later
    fetches must find the same.

    Args:
        task: The task; nothing is fetched for a generated one.
        folder: Folder of the data sets.
        progress: Receives what is being done, and how much of it.
        given: A file of the user's, or the folder it is in, instead of a download.
        sha256: Sum of that file, if it is not the published one.

    Raises:
        BadInput: `sha256` without `given`, or `given` for a task without files.
        BadData: A file cannot be fetched, or is not the published one.
    """
    if sha256 is not None and given is None:
        must = "requires the file whose digest it is"
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
    """Return the data that a task would use.

    Args:
        task: The task.
        folder: Folder of the data sets; the encoded data set is written to its cache.
        options: Options of the task, as the section `data` of a search-space file has them.
        progress: If given, the data set is encoded and every row of it read, and this receives how far.

    Raises:
        BadData: The data is missing or damaged.
        Refusal: An option is wrong.
    """
    source = task.check(options, folder)
    loaded = task.load(options, folder, progress) if progress else None
    return CheckedData(source, stored_paths(source), loaded)
