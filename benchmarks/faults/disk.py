"""A model of a disk that loses power: what was flushed stays; any of the rest may be dropped or torn.

A flush of a file makes its content durable, but not its name; a flush of a folder makes the names in it
durable. Of what was not flushed, every change of a name and every sector of a write may reach the disk or
not, in any order, and a file may have its new size with zeros in place of its content.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SECTOR = 512


class Operation(NamedTuple):
    """One record of the log.

    Attributes:
        kind: Write, Truncate, Flush, Create, Directory, Rename, Unlink or Mark, by its first letter.
        offset: Offset of a write, or size of a truncation.
        path: Path of the file or folder, or text of a mark.
        other: New path of a renaming.
        data: Bytes of a write.
    """

    kind: str
    offset: int
    path: str
    other: str = ""
    data: bytes = b""


def operations(log: Path) -> list[Operation]:
    """Read the log that `recording.c` has written."""
    content, at, read = log.read_bytes(), 0, []
    while at < len(content):
        end = content.index(b"\n", at)
        kind, offset, size, paths = content[at:end].decode().split(" ", 3)
        path, _, other = paths.partition("\t")
        at = end + 1 + int(size)
        read.append(Operation(kind, int(offset), path, other, content[end + 1 : at]))
    return read


Survives = Callable[[], bool]
"""Returns True if the next change that was not flushed reaches the disk nevertheless."""


@dataclass
class File:
    """A file: its durable content, and the changes since its last flush."""

    content: bytes = b""
    pending: list[Operation] = field(default_factory=list)

    def flush(self) -> None:
        """Make every change durable."""
        self.content, self.pending = self.after(lambda: True), []

    def after(self, survives: Survives, *, keeps_size: bool = False) -> bytes:
        """Return the content after a loss of power.

        Args:
            survives: Decides for every sector of a write, and for every truncation.
            keeps_size: Whether the size survives without the content, which is then zeros.
        """
        content, size = bytearray(self.content), len(self.content)
        for operation in self.pending:
            if operation.kind == "T":
                size = operation.offset
                if survives():
                    del content[size:]
                    content.extend(bytes(size - len(content)))
                continue
            size = max(size, operation.offset + len(operation.data))
            for start, piece in _sectors(operation):
                if survives():
                    content.extend(bytes(max(0, start + len(piece) - len(content))))
                    content[start : start + len(piece)] = piece
        if keeps_size:
            content.extend(bytes(max(0, size - len(content))))
        return bytes(content)


def _sectors(operation: Operation) -> Iterator[tuple[int, bytes]]:
    """Yield the parts of a write that lie in one sector each, with their offsets."""
    at, end = operation.offset, operation.offset + len(operation.data)
    while at < end:
        until = min(end, (at // SECTOR + 1) * SECTOR)
        yield at, operation.data[at - operation.offset : until - operation.offset]
        at = until


@dataclass
class Folder:
    """A folder: its durable names, those that processes see, and the changes since its last flush."""

    durable: dict[str, File | Folder] = field(default_factory=dict)
    names: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[tuple[str, str, File | Folder | None]] = field(default_factory=list)

    def change(self, old: str, new: str, node: File | Folder | None) -> None:
        """Remove the name `old`, if there is one, and give `node`, if there is one, the name `new`."""
        _renamed(self.names, old, new, node)
        self.pending.append((old, new, node))

    def flush(self) -> None:
        """Make every change durable."""
        self.durable, self.pending = self.after(lambda: True), []

    def after(self, survives: Survives) -> dict[str, File | Folder]:
        """Return the names after a loss of power."""
        names = dict(self.durable)
        for change in self.pending:
            if survives():
                _renamed(names, *change)
        return names


def _renamed(names: dict[str, File | Folder], old: str, new: str, node: File | Folder | None) -> None:
    names.pop(old, None)
    if node is not None:
        names[new] = node


class Disk:
    """A disk that holds one folder.

    Args:
        root: Path of the folder in the log.
        begun: Folder with the durable content at the beginning.
    """

    def __init__(self, root: Path, begun: Path) -> None:
        self._root, self._folder = root, _read(begun)

    def apply(self, operation: Operation) -> None:
        """Apply one operation of a process."""
        if operation.kind == "M":
            return
        if operation.kind == "F":
            self._find(operation.path).flush()
            return
        if operation.kind in "WT":
            file = self._find(operation.path)
            assert isinstance(file, File), operation.path
            file.pending.append(operation)
            return
        folder, name = self._parent(operation.path)
        if operation.kind == "R":
            target, new = self._parent(operation.other)
            node = folder.names[name]
            if target is folder:
                folder.change(name, new, node)
            else:
                folder.change(name, "", None)
                target.change("", new, node)
        elif operation.kind == "U":
            folder.change(name, "", None)
        else:
            folder.change("", name, File() if operation.kind == "C" else Folder())

    def lose_power(self, into: Path, chance: random.Random) -> None:
        """Write what is left of the folder to another one."""
        share = chance.choice((0.0, 0.1, 0.5, 0.5, 0.9, 1.0))
        _write(self._folder, into, lambda: chance.random() < share, chance)

    def _parent(self, path: str) -> tuple[Folder, str]:
        folder = self._find(str(Path(path).parent))
        assert isinstance(folder, Folder), path
        return folder, Path(path).name

    def _find(self, path: str) -> File | Folder:
        node: File | Folder = self._folder
        for name in Path(path).relative_to(self._root).parts:
            assert isinstance(node, Folder), path
            node = node.names[name]
        return node


def _read(folder: Path) -> Folder:
    names: dict[str, File | Folder] = {
        path.name: _read(path) if path.is_dir() else File(path.read_bytes()) for path in folder.iterdir()
    }
    return Folder(dict(names), names)


def _write(folder: Folder, into: Path, survives: Survives, chance: random.Random) -> None:
    into.mkdir(mode=0o700)
    for name, node in folder.after(survives).items():
        if isinstance(node, Folder):
            _write(node, into / name, survives, chance)
        else:
            (into / name).write_bytes(node.after(survives, keeps_size=chance.random() < 0.3))
