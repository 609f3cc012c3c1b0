"""Inventory of the data folder by task."""

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
"""Maximum number of files whose checksums are computed."""


@dataclass(frozen=True)
class StoredPath:
    """One file or folder of a source.

    Attributes:
        path: Path of the file or folder.
        files: Number of files.
        bytes: Total size of the files.
        sha256: SHA-256 of a file; None for a folder, or if the source has many files.
    """

    path: Path
    files: int
    bytes: int
    sha256: str | None


@dataclass(frozen=True)
class State:
    """State of the data of a task.

    Attributes:
        source: Data that the task would read, or None if something is missing.
        missing: Message about missing data, or ''.
        bytes: Total size of the files that the task would read.
    """

    source: Source | None
    missing: str
    bytes: int


def state(task: Task, options: Mapping[str, Any], folder: Path) -> State:
    """Return the state of the data of a task."""
    try:
        source = task.check(options, folder)
    except BadData as error:
        return State(None, str(error), 0)
    return State(source, "", sum(_size(path)[1] for path in source.files))


def stored_paths(source: Source) -> list[StoredPath]:
    """Return the size and the checksum of every path of a source."""
    sizes = [(path, *_size(path)) for path in source.files]
    few = sum(files for _, files, _ in sizes) <= _FILES_TO_SUM
    return [
        StoredPath(path, files, size, _sum(path) if few and path.is_file() else None)
        for path, files, size in sizes
    ]


def _size(path: Path) -> tuple[int, int]:
    """Return the number and the total size of the files at or under a path."""
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
