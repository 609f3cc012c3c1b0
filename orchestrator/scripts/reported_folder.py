"""The folder that a script reports as a checkpoint, read without following it to what it must not show.

Every report with a checkpoint comes through here. Each folder is opened once, relative to the one that holds
it, and its files relative to it: a name that becomes a link meanwhile leads nowhere.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class TooLarge(Exception):
    """The files of a folder have more bytes than they may."""


@contextmanager
def own_file(path: str | Path, flags: int, folder: int | None = None) -> Iterator[BinaryIO]:
    """Open a file that the script was given, and nothing that it has put in its place.

    Args:
        path: of the file.
        flags: of `os.open`.
        folder: descriptor of the folder that the path begins in, or None.

    Raises:
        OSError: it is a link, a pipe or a folder now, which could block, never end, or be another's.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(descriptor, "rb" if flags == os.O_RDONLY else "wb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a file", str(path))
        yield file


def read(base: Path, folder: Path, most: int | None = None) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the files below a folder by their relative path, and the links that lead out of it.

    A link to a file below the folder stands for that file.

    Args:
        base: without a link in its path.
        folder: `base`, or a folder below it.
        most: bytes of all files, or None for any number.

    Raises:
        OSError: the folder is a link or none, or has a part that became one meanwhile.
        TooLarge: there are more bytes; no more than that were read.
    """
    return _Reading(base, folder, most).result()


class _Reading:
    def __init__(self, base: Path, folder: Path, most: int | None) -> None:
        self._base, self._folder, self._left = base, folder, most
        self._files: dict[str, np.ndarray] = {}
        self._links: list[str] = []

    def result(self) -> tuple[dict[str, np.ndarray], list[str]]:
        with _opened(self._base, self._folder.relative_to(self._base).parts) as descriptor:
            self._take_folder(descriptor, "")
        return dict(sorted(self._files.items())), sorted(self._links)

    def _take_folder(self, folder: int, prefix: str) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    self._take_link(prefix + entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    with _opened(entry.name, (), folder) as inner:
                        self._take_folder(inner, f"{prefix}{entry.name}/")
                elif entry.is_file(follow_symlinks=False):
                    self._files[prefix + entry.name] = self._content(entry.name, folder)

    def _take_link(self, name: str) -> None:
        target = (self._folder / name).resolve()
        if target.is_file() and target.is_relative_to(self._folder):
            *folders, last = target.relative_to(self._base).parts
            with _opened(self._base, tuple(folders)) as folder:
                self._files[name] = self._content(last, folder)
        else:
            self._links.append(name)

    def _content(self, name: str, folder: int) -> np.ndarray:
        with own_file(name, os.O_RDONLY, folder) as file:
            if self._left is not None:
                self._left -= os.fstat(file.fileno()).st_size
                if self._left < 0:
                    raise TooLarge
            return np.frombuffer(file.read(), np.uint8)


@contextmanager
def _opened(place: str | Path, parts: tuple[str, ...], folder: int | None = None) -> Iterator[int]:
    """Open the folder at the end of a path, each part relative to the one before."""
    descriptor = os.open(place, _FOLDER, dir_fd=folder)
    try:
        if not parts:
            yield descriptor
            return
        with _opened(parts[0], parts[1:], descriptor) as last:
            yield last
    finally:
        os.close(descriptor)
