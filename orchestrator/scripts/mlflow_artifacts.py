"""Artifacts that a script logs with MLflow, between its upload and the report with which they are kept."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from uuid import uuid4

MOST_BYTES = 1 << 30
"""Largest total size in bytes of the artifacts that an attempt keeps."""

MOST_ARTIFACTS = 1_000
"""Largest number of files among them."""

LONGEST_PATH, LONGEST_PART = 1_000, 250
"""Maximum length in bytes of the path of an artifact, and of each of its parts."""

_PIECE = 1 << 20
"""Bytes of an upload that are in memory at once."""


class MlflowArtifacts:
    """Files that a script uploads as artifacts; those since the last report become a part of the next one.

    An upload is complete before the script goes on, so a report waits for no file. A script that ends between
    two reports leaves nothing: its next attempt repeats these steps, and logs their files again.

    Args:
        folder: Folder of the attempt, on the disk of the results. It is created with the first file.
        most: Largest total size of the files in bytes.
    """

    def __init__(self, folder: Path, most: int = MOST_BYTES) -> None:
        self.folder = folder
        self._kept, self._new, self._partial = (folder / name for name in ("kept", "new", "partial"))
        self._most = most
        self._sizes: dict[str, int] = {}
        self._since: set[str] = set()
        self._left_out: list[str] = []
        self._lock = threading.Lock()

    def write(self, name: str, body: BufferedIOBase, size: int) -> None:
        """Write a file, which replaces an earlier one of its name.

        A file that exceeds a limit is read and left out; `left_out` names it.

        Args:
            name: Relative path of the artifact.
            body: Its content.
            size: Its size in bytes.

        Raises:
            ValueError: The name is invalid, or the body is shorter than its size.
            OSError: The disk is full or fails, or a part of the path is a file.
        """
        check_name(name)
        with self._lock:
            before = self._sizes.get(name)
            others = sum(self._sizes.values()) - (before or 0)
            fits = others + size <= self._most and (name in self._sizes or len(self._sizes) < MOST_ARTIFACTS)
            if fits:
                self._sizes[name] = size
            elif len(self._left_out) < MOST_ARTIFACTS:
                self._left_out.append(name)
        if not fits:
            for _ in _pieces(body, size):
                pass
            return
        self._partial.mkdir(parents=True, exist_ok=True)
        partial = self._partial / uuid4().hex
        try:
            with partial.open("wb") as file:
                for piece in _pieces(body, size):
                    file.write(piece)
            with self._lock:
                _move(partial, self._new / name)
                self._since.add(name)
        except BaseException:
            partial.unlink(missing_ok=True)
            with self._lock:
                if before is None:
                    self._sizes.pop(name, None)
                else:
                    self._sizes[name] = before
            raise

    def take(self) -> list[str]:
        """Keep the files that were logged since the last call; return their names, which `kept` finds."""
        with self._lock:
            names, self._since = sorted(self._since), set()
            taken = []
            for name in names:
                # A name may have become that of a folder since an earlier report.
                with suppress(NotADirectoryError, IsADirectoryError, FileExistsError):
                    _move(self._new / name, self._kept / name)
                    taken.append(name)
        return taken

    def left_out(self) -> list[str]:
        """Return the names of the first files that were left out since the last call."""
        with self._lock:
            names, self._left_out = self._left_out, []
        return names

    def kept(self, name: str) -> Path:
        """Return the path of a file that `take` has returned."""
        return self._kept / name

    def find(self, name: str) -> Path | None:
        """Return the newest file of a name, or None."""
        check_name(name)
        found = (folder / name for folder in (self._new, self._kept))
        return next((path for path in found if path.is_file()), None)

    def entries(self, name: str) -> Mapping[str, int | None]:
        """Return the entries of a folder, '' for the top: the size of each file, None for a folder."""
        if name:
            check_name(name)
        found: dict[str, int | None] = {}
        for folder in (self._kept / name, self._new / name):
            for path in folder.iterdir() if folder.is_dir() else ():
                found[path.name] = None if path.is_dir() else path.stat().st_size
        return found

    def close(self) -> None:
        """Remove files that no report has taken."""
        for folder in (self._new, self._partial):
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # not empty, or never created
            self.folder.rmdir()
            self.folder.parent.rmdir()


def check_name(name: str) -> None:
    """Check that a name is the relative path of a file inside the folder of artifacts.

    Raises:
        ValueError: It is not.
    """
    parts = name.split("/")
    fits = len(os.fsencode(name)) <= LONGEST_PATH and all(
        0 < len(os.fsencode(part)) <= LONGEST_PART and part not in (".", "..") and part.isprintable()
        for part in parts
    )
    if not fits or PurePosixPath(name).is_absolute():
        must = f"an artifact must have a relative path without `..`, of at most {LONGEST_PATH} bytes"
        raise ValueError(f"{must} (got {name!r:.80})")


def _pieces(body: BufferedIOBase, size: int) -> Iterator[bytes]:
    """Yield exactly `size` bytes.

    Raises:
        ValueError: There are fewer.
    """
    left = size
    while left:
        piece = body.read(min(_PIECE, left))
        if not piece:
            raise ValueError(f"an artifact must be sent whole (got {size - left} of {size} bytes)")
        yield piece
        left -= len(piece)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)
