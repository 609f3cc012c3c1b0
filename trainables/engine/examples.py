"""Examples on the device: a whole split, or equal blocks of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from trainables.data.task import Split


class Examples(NamedTuple):
    """Examples on the device, in the types they are stored in.

    Attributes:
        inputs: (n, L), (n, L, F) or (n, 2, L).
        lengths: (n,) or (n, 2) int32.
        targets: (n,) or (n, L).
    """

    inputs: Array
    lengths: Array
    targets: Array

    def at(self, rows: Array) -> Examples:
        """Return the examples of some rows."""
        return Examples(*(part[rows] for part in self))


def on_device(split: Split) -> Examples:
    """Return a split on the device; a CPU maps the file's pages and copies nothing."""
    return Examples(*(jax.device_put(part) for part in (split.inputs, split.lengths, split.targets)))


def blocks(split: Split, count: int, rows: int) -> Iterator[tuple[Examples, int]]:
    """Yield blocks of `rows` examples, the last one filled with zeros, and how many of each count.

    Args:
        split: of which the first `count` examples are read.
        count: at most the split's size.
        rows: of every block, so that one program serves every split.
    """
    for start in range(0, count, rows):
        stop = min(start + rows, count)
        parts = (part[start:stop] for part in (split.inputs, split.lengths, split.targets))
        yield on_device(Split(*(_filled(part, rows) for part in parts))), stop - start


def _filled(part: np.ndarray, rows: int) -> np.ndarray:
    missing = rows - len(part)
    return np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)]) if missing else part
