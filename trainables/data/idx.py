"""Reads the idx files in which MNIST is published, packed with gzip or not."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from trainables.errors import BadData

_UNSIGNED_BYTES = 8
_AGAIN = "Fetch the file again."


def located(folder: Path, name: str) -> Path | None:
    """Return the file with a name, with or without the suffix `.gz`; None if neither exists."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def shape(path: Path) -> tuple[int, ...]:
    """Read the shape that a file's header declares.

    Raises:
        BadData: The file is not an idx file of unsigned bytes.
    """
    with _opened(path) as file:
        return _header(path, file)


def read(path: Path) -> np.ndarray:
    """Read a whole file into a uint8 array of its declared shape.

    Raises:
        BadData: The file is not an idx file of unsigned bytes, or shorter or longer than declared.
    """
    with _opened(path) as file:
        declared = _header(path, file)
        expected = int(np.prod(declared))
        try:
            content = file.read(expected + 1)
        except (EOFError, OSError, zlib.error) as error:
            raise BadData(str(path), "must be a complete gzip file", str(error), _AGAIN) from error
    if len(content) != expected:
        got = f"{len(content):,}" if len(content) < expected else "more"
        raise BadData(str(path), f"must hold the {expected:,} bytes its header declares", got, _AGAIN)
    return np.frombuffer(content, np.uint8).reshape(declared)


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path) if path.suffix == ".gz" else path.open("rb"))


def _header(path: Path, file: BinaryIO) -> tuple[int, ...]:
    try:
        magic = file.read(4)
        if len(magic) != 4 or magic[:2] != b"\0\0" or magic[2] != _UNSIGNED_BYTES or not 1 <= magic[3] <= 4:
            raise BadData(str(path), "must start as an idx file of unsigned bytes", repr(magic), _AGAIN)
        sizes = file.read(4 * magic[3])
    except (EOFError, OSError, zlib.error) as error:
        raise BadData(str(path), "must be a complete gzip file", str(error), _AGAIN) from error
    if len(sizes) != 4 * magic[3]:
        raise BadData(str(path), "must have a complete header", f"{4 + len(sizes)} bytes", _AGAIN)
    return tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
