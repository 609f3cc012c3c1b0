"""Reads CIFAR-10 in its two published forms, binary records and Python batches.

A Python batch is a pickle. It is read by an unpickler that knows NumPy's arrays and nothing else, so that a
file from anywhere can build no other object and call nothing.
"""

from __future__ import annotations

# The published Python batches are pickles; `_ArraysOnly` is the only way one is opened here.
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trainables.errors import BadData

IMAGE_BYTES = 3 * 32 * 32
CLASSES = 10
_RECORD = 1 + IMAGE_BYTES
_AGAIN = "Fetch the file again."
_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")

FORMS = {"cifar-10-batches-bin": ".bin", "cifar-10-batches-py": ""}
"""The folder of each form, and how its files end."""


def batches(folder: Path) -> tuple[Path, ...] | None:
    """Return the six batches, test last, of the first form that is there, or None.

    Raises:
        BadData: a form's folder is there, but one of its files is not, or it is empty.
    """
    for name, suffix in FORMS.items():
        if (folder / name).is_dir():
            paths = tuple(folder / name / f"{batch}{suffix}" for batch in _BATCHES)
            for path in paths:
                if not path.is_file() or not path.stat().st_size:
                    got = "an empty file" if path.is_file() else "no such file"
                    raise BadData(str(path), "must be a batch of CIFAR-10", got, _AGAIN)
            return paths
    return None


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read a batch: pixels (n, 1024, 3) uint8, row after row, and labels (n,) int32.

    Raises:
        BadData: it is truncated, in another form, empty, or has a label out of range.
    """
    planes, labels = _binary(path) if path.suffix == ".bin" else _python(path)
    if not len(labels):
        raise BadData(str(path), "must hold images", "zero rows", _AGAIN)
    wrong = (labels < 0) | (labels >= CLASSES)
    if wrong.any():
        row = int(np.argmax(wrong))
        must = f"must have a label of 0 to {CLASSES - 1}"
        raise BadData(f"{path}: row {row}", must, str(labels[row]), _AGAIN)
    return planes.reshape(-1, 3, 1024).transpose(0, 2, 1), labels.astype(np.int32)


def grey(pixels: np.ndarray) -> np.ndarray:
    """Return the luma (n, L, 1) uint8 of pixels (n, L, 3), rounded as Pillow's mode L rounds it."""
    red, green, blue = (pixels[:, :, channel].astype(np.uint32) for channel in range(3))
    luma = (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16
    return luma.astype(np.uint8)[:, :, None]


def _binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    size = path.stat().st_size
    if size % _RECORD:
        raise BadData(str(path), f"must hold whole records of {_RECORD} bytes", f"{size:,} bytes", _AGAIN)
    records = np.fromfile(path, np.uint8).reshape(-1, _RECORD)
    return records[:, 1:], records[:, 0].astype(np.int64)


def _python(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with path.open("rb") as file:
        try:
            content = _ArraysOnly(file, encoding="bytes").load()
        except Exception as error:
            # Bytes that are no batch may ask for anything: a missing mark, 2**60 pixels, a method of a list.
            got = str(error) or type(error).__name__
            raise BadData(str(path), "must be a whole Python batch of CIFAR-10", got, _AGAIN) from error
    pixels, labels = _entries(path, content)
    if pixels.shape != (len(labels), IMAGE_BYTES) or pixels.dtype != np.uint8:
        must = f"must hold {len(labels)} rows of {IMAGE_BYTES} bytes"
        raise BadData(str(path), must, f"shape {pixels.shape}, {pixels.dtype}", _AGAIN)
    return pixels, labels


def _entries(path: Path, content: Any) -> tuple[np.ndarray, np.ndarray]:
    found = content if isinstance(content, dict) else {}
    pixels, labels = found.get(b"data"), found.get(b"labels")
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list):
        got = f"the keys {sorted(map(str, found))}" if found else type(content).__name__
        raise BadData(str(path), "must hold the data and labels of CIFAR-10", got, _AGAIN)
    if not all(type(label) is int for label in labels):
        raise BadData(str(path), "must hold whole numbers as labels", repr(labels[:3]), _AGAIN)
    return pixels, np.array(labels, np.int64)


def _blank(kind: type[np.ndarray], shape: tuple[int, ...], code: bytes) -> np.ndarray:
    """Return the array that a pickle goes on to fill, as NumPy's own `_reconstruct`."""
    return np.ndarray(shape, np.dtype(code.decode()))


class _ArraysOnly(pickle.Unpickler):
    """Unpickles built-in values and NumPy arrays; refuses any other name."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the three names that an array needs."""
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return partial(_blank)  # its own for every file: a pickle may change what it is given
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch needs")
