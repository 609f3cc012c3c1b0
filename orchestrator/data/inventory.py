"""What a data folder holds for each task."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.data.task import Source, Task
from trainables.errors import BadData

_FILES_TO_SUM = 20
"""Of more files than this only the number and the size are shown."""


@dataclass(frozen=True)
class Holding:
    """What there is of one source's files.

    Attributes:
        path: a file or a folder.
        files: how many files it is.
        bytes: of all of them.
        sha256: of a file; None for a folder.
    """

    path: Path
    files: int
    bytes: int
    sha256: str | None


@dataclass(frozen=True)
class State:
    """Whether a task could run now.

    Attributes:
        source: what it would read, or None if something is missing.
        missing: what is missing and what to do, or ''.
        bytes: of the files it would read.
    """

    source: Source | None
    missing: str
    bytes: int


def state(task: Task, options: Mapping[str, Any], folder: Path) -> State:
    """Say whether a task could run, and from what."""
    try:
        source = task.check(options, folder)
    except BadData as error:
        return State(None, str(error), 0)
    return State(source, "", sum(_size(path)[1] for path in source.files))


def holdings(source: Source) -> list[Holding]:
    """Return size and sum of everything a source is read from."""
    found = [(path, *_size(path)) for path in source.files]
    few = sum(files for _, files, _ in found) <= _FILES_TO_SUM
    return [
        Holding(path, files, size, _sum(path) if few and path.is_file() else None)
        for path, files, size in found
    ]


def _size(path: Path) -> tuple[int, int]:
    """Return how many files a path is, and their bytes."""
    if path.is_file():
        return 1, path.stat().st_size
    files = total = 0
    for entry in os.scandir(path):
        inner = _size(Path(entry.path)) if entry.is_dir() else (1, entry.stat().st_size)
        files, total = files + inner[0], total + inner[1]
    return files, total


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
