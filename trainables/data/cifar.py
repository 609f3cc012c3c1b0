"""Reads CIFAR-10 in its two published formats, binary records and Python batches.

A Python batch is a pickle. A damaged one could fill the memory or end the process, because the unpickler and
NumPy's `__setstate__` trust its sizes and shapes. The sizes are therefore checked before it is unpickled. The
unpickler constructs only plain values, and records the description of the array, which is then checked.
"""

from __future__ import annotations

import io

# The published Python batches are pickles; `_PlainValues` is the only way in which one is opened.
import pickle
import pickletools
import reprlib
from pathlib import Path
from typing import Any

import numpy as np

from trainables.errors import BadData

IMAGE_BYTES = 3 * 32 * 32
CLASSES = 10
_RECORD = 1 + IMAGE_BYTES
_AGAIN = "Fetch the file again."
_MEMO_WRITES = ("PUT", "BINPUT", "LONG_BINPUT")
_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")

FORMATS = {"cifar-10-batches-bin": ".bin", "cifar-10-batches-py": ""}
"""The folder of each format, and the suffix of its files."""


def batches(folder: Path) -> tuple[Path, ...] | None:
    """Return the six batches, test last, of the first format whose folder exists, or None.

    Raises:
        BadData: A file in the folder of a format is missing or empty.
    """
    for name, suffix in FORMATS.items():
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
        BadData: The batch is truncated, empty or in another format, or has a label out of range.
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
        raise BadData(
            str(path), f"must consist of complete records of {_RECORD} bytes", f"{size:,} bytes", _AGAIN
        )
    records = np.fromfile(path, np.uint8).reshape(-1, _RECORD)
    return records[:, 1:], records[:, 0].astype(np.int64)


def _python(path: Path) -> tuple[np.ndarray, np.ndarray]:
    content = path.read_bytes()
    try:
        _check_sizes(content)
        batch = _PlainValues(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:
        # Bytes that are not a batch may ask for anything: a missing mark, 2**60 pixels, a method of a list.
        got = str(error) or type(error).__name__
        raise BadData(str(path), "must be a complete Python batch of CIFAR-10", got, _AGAIN) from error
    labels = _labels(path, batch)
    rows = batch[b"data"].bytes_of((len(labels), IMAGE_BYTES))
    if rows is None:
        must = f"must hold {len(labels)} rows of {IMAGE_BYTES} bytes"
        raise BadData(str(path), must, str(batch[b"data"]), _AGAIN)
    return np.frombuffer(rows, np.uint8).reshape(-1, IMAGE_BYTES), labels


def _check_sizes(content: bytes) -> None:
    """Raise an exception if a pickle declares more bytes than it has, or a memo larger than itself.

    The unpickler allocates what a pickle declares before it reads the rest.
    """
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in _MEMO_WRITES and isinstance(argument, int) and argument > len(content):
            raise pickle.UnpicklingError(f"it asks for a memo of {argument:,} values")


def _labels(path: Path, batch: Any) -> np.ndarray:
    entries = batch if isinstance(batch, dict) else {}
    labels = entries.get(b"labels")
    if not isinstance(entries.get(b"data"), _Array) or not isinstance(labels, list):
        got = f"the keys {reprlib.repr(list(entries))}" if entries else type(batch).__name__
        raise BadData(str(path), "must hold the data and labels of CIFAR-10", got, _AGAIN)
    if not all(type(label) is int and abs(label) < 2**31 for label in labels):
        raise BadData(str(path), "must hold whole numbers as labels", reprlib.repr(labels), _AGAIN)
    return np.array(labels, np.int64)


class _Recorded:
    """The description of a NumPy object in a pickle: its constructor arguments and its state."""

    # A pickle may make an object without calling `__init__`.
    arguments: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Dtype(_Recorded):
    """`numpy.dtype(code, align, copy)`."""


class _Array(_Recorded):
    """`numpy._reconstruct(...)`, filled with (version, shape, dtype, column by column?, bytes)."""

    def bytes_of(self, shape: tuple[int, int]) -> bytes | None:
        """Return the bytes of a uint8 array of this shape, row by row; None for another array."""
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            return None
        _, own_shape, dtype, by_columns, content = self.state
        if (
            own_shape != shape
            or not isinstance(dtype, _Dtype)
            or dtype.arguments[:1] not in ((b"u1",), ("u1",))
        ):
            return None
        whole = isinstance(content, bytes) and len(content) == shape[0] * shape[1]
        return content if whole and by_columns in (False, 0) else None

    def __str__(self) -> str:
        """Return the shape and the code of the dtype, if the file has them."""
        state = self.state if isinstance(self.state, tuple) else ()
        shape, dtype = (*state[1:3], None, None)[:2]
        code = dtype.arguments[0] if isinstance(dtype, _Dtype) and dtype.arguments else dtype
        return f"shape {reprlib.repr(shape)}, dtype {reprlib.repr(code)}"


class _PlainValues(pickle.Unpickler):
    """Unpickles built-in values and records descriptions of NumPy arrays; refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for one of the three names that an array needs.

        Raises:
            UnpicklingError: The pickle asks for any other name.
        """
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _Array
        if module == "numpy" and name in ("ndarray", "dtype"):
            return _Dtype if name == "dtype" else None
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch needs")
