"""Reads CIFAR-10 in its two published forms, binary records and Python batches.

A Python batch is a pickle. It is read by an unpickler written in Python that builds plain values only: what
the file says of its array is written down and looked at. The unpickler in C and NumPy's own `__setstate__`
trust what they are given: a damaged file would end the process.
"""

from __future__ import annotations

# The published Python batches are pickles; `_PlainValues` is the only way one is opened here.
import pickle
import reprlib
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
            content = _PlainValues(file, encoding="bytes").load()
        except Exception as error:
            # Bytes that are no batch may ask for anything: a missing mark, 2**60 pixels, a method of a list.
            got = str(error) or type(error).__name__
            raise BadData(str(path), "must be a whole Python batch of CIFAR-10", got, _AGAIN) from error
    labels = _labels(path, content)
    rows = content[b"data"].bytes_of((len(labels), IMAGE_BYTES))
    if rows is None:
        must = f"must hold {len(labels)} rows of {IMAGE_BYTES} bytes"
        raise BadData(str(path), must, str(content[b"data"]), _AGAIN)
    return np.frombuffer(rows, np.uint8).reshape(-1, IMAGE_BYTES), labels


def _labels(path: Path, content: Any) -> np.ndarray:
    found = content if isinstance(content, dict) else {}
    labels = found.get(b"labels")
    if not isinstance(found.get(b"data"), _Array) or not isinstance(labels, list):
        got = f"the keys {reprlib.repr(list(found))}" if found else type(content).__name__
        raise BadData(str(path), "must hold the data and labels of CIFAR-10", got, _AGAIN)
    if not all(type(label) is int and abs(label) < 2**31 for label in labels):
        raise BadData(str(path), "must hold whole numbers as labels", reprlib.repr(labels), _AGAIN)
    return np.array(labels, np.int64)


class _Recorded:
    """What a pickle says of a NumPy object: how it is made, and the state that it is given."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Dtype(_Recorded):
    """`numpy.dtype(code, align, copy)`."""


class _Array(_Recorded):
    """`numpy._reconstruct(...)`, filled with (version, shape, dtype, column by column?, bytes)."""

    def bytes_of(self, shape: tuple[int, int]) -> bytes | None:
        """Return the bytes of a uint8 array of this shape, row by row; None if it is another."""
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            return None
        _, told, dtype, by_columns, content = self.state
        if told != shape or not isinstance(dtype, _Dtype) or dtype.arguments[:1] not in ((b"u1",), ("u1",)):
            return None
        whole = isinstance(content, bytes) and len(content) == shape[0] * shape[1]
        return content if whole and by_columns in (False, 0) else None

    def __str__(self) -> str:
        """Return its shape and the code of its dtype, as far as the file tells them."""
        told = self.state if isinstance(self.state, tuple) else ()
        shape, dtype = (*told[1:3], None, None)[:2]
        code = dtype.arguments[0] if isinstance(dtype, _Dtype) and dtype.arguments else dtype
        return f"shape {reprlib.repr(shape)}, dtype {reprlib.repr(code)}"


# The unpickler in C can be made to crash, or to fill the memory, by bytes that are no pickle.
class _PlainValues(pickle._Unpickler):
    """Unpickles built-in values, and what is said of NumPy arrays; refuses any other name."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for one of the three names that an array needs."""
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _Array
        if module == "numpy" and name in ("ndarray", "dtype"):
            return _Dtype if name == "dtype" else None
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch needs")
