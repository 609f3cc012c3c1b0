"""Checkpoint folders of scripts, read without following links to other files.

Each folder is opened once, relative to its parent, and its files relative to the folder. A name that is
replaced by a link meanwhile cannot be opened (no TOCTOU race).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:  # NumPy takes a tenth of a second, and most readers of a file pack nothing
    from trainables.checkpoint import Packing

MOST_ENTRIES = 100_000
"""Maximum number of files and folders in a checkpoint, whose manifest lists each of them."""

LONGEST_PATH = 3500
"""Maximum length of a path in a checkpoint in bytes; the system must also open it below another folder."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class FolderTooLarge(Exception):
    """A folder has too many bytes, too many files, or too long paths."""


@contextmanager
def own_file(path: str | Path, flags: int, folder: int | None = None) -> Iterator[BinaryIO]:
    """Open a regular file of a script without following links.

    Args:
        path: Path of the file.
        flags: Flags of `os.open`.
        folder: Descriptor of the folder to which the path is relative, or None.

    Raises:
        OSError: It is a link, a pipe or a folder, which could block, never end, or belong to another user.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(descriptor, "rb" if flags == os.O_RDONLY else "wb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a file", str(path))
        yield file


@dataclass(frozen=True)
class LeftOut:
    """Relative paths of entries that were not copied.

    Attributes:
        links: Links to files outside the folder, or broken ones.
        others: Links to folders, sockets, pipes, devices, and entries that have vanished meanwhile.
    """

    links: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def pack(base: Path, folder: Path, packing: Packing, most: int | None = None) -> LeftOut:
    """Copy the files below a folder into a checkpoint; return the entries that were not copied.

    A link to a file below the folder is replaced by that file.

    Args:
        base: Folder without a link in its path.
        folder: `base`, or a folder below it.
        packing: Checkpoint to write.
        most: Maximum total size of the files in bytes, holes included, or None.

    Raises:
        OSError: The folder is a link or not a folder, or a part of its path became a link meanwhile.
        FolderTooLarge: The files exceed `most` or another limit; no more than that was read.
        Changed: A file was shortened meanwhile.
    """
    reading = _Reading(base, folder, packing, most)
    with _opened(base, folder.relative_to(base).parts) as descriptor:
        reading.take_folder(descriptor, "")
    return reading.left_out


class _Reading:
    def __init__(self, base: Path, folder: Path, packing: Packing, most: int | None) -> None:
        self._base, self._folder, self._packing, self._left = base, folder, packing, most
        self._entries = 0
        self.left_out = LeftOut()

    def take_folder(self, folder: int, prefix: str) -> None:
        self._packing.add_folder(prefix.rstrip("/"), os.fstat(folder))
        with os.scandir(folder) as scanned:
            entries = []
            for entry in scanned:
                self._entries += 1
                if self._entries > MOST_ENTRIES or len(os.fsencode(prefix + entry.name)) > LONGEST_PATH:
                    raise FolderTooLarge
                entries.append(entry)
            for entry in sorted(entries, key=lambda each: each.name):
                try:
                    self._take(entry, folder, prefix)
                except FileNotFoundError:
                    self.left_out.others.append(prefix + entry.name)

    def _take(self, entry: os.DirEntry[str], folder: int, prefix: str) -> None:
        name = prefix + entry.name
        if entry.is_symlink():
            self._take_link(name)
        elif entry.is_dir(follow_symlinks=False):
            with _opened(entry.name, (), folder) as inner:
                self.take_folder(inner, f"{name}/")
        elif entry.is_file(follow_symlinks=False):
            self._take_file(name, entry.name, folder)
        else:
            self.left_out.others.append(name)

    def _take_link(self, name: str) -> None:
        target = Path(os.path.realpath(self._folder / name))
        if target.is_relative_to(self._folder) and target.is_file():
            *folders, last = target.relative_to(self._base).parts
            with _opened(self._base, tuple(folders)) as folder:
                self._take_file(name, last, folder)
        elif target.is_relative_to(self._folder) and target.exists():
            self.left_out.others.append(name)
        else:
            self.left_out.links.append(name)

    def _take_file(self, name: str, last: str, folder: int) -> None:
        with own_file(last, os.O_RDONLY, folder) as file:
            facts = os.fstat(file.fileno())
            if self._left is not None:
                self._left -= facts.st_size
                if self._left < 0:
                    raise FolderTooLarge
            self._packing.add(name, file, facts)


@contextmanager
def _opened(place: str | Path, parts: tuple[str, ...], folder: int | None = None) -> Iterator[int]:
    """Open the folder at the end of a path, each part relative to its parent."""
    descriptor = os.open(place, _FOLDER, dir_fd=folder)
    try:
        if not parts:
            yield descriptor
            return
        with _opened(parts[0], parts[1:], descriptor) as last:
            yield last
    finally:
        os.close(descriptor)
