"""The examples of a split in blocks of one size, in the order in which an evaluation reads them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from trainables.engine.slot_program import Examples, on_device


class ExampleBlock(NamedTuple):
    """Some examples of a split.

    Attributes:
        examples: Examples on the device; padding rows hold arbitrary values.
        counts: (n,) float32, 1 for each example and 0 for padding.
        rounds: Number of groups that the program processes one after the other.
        places: (n,) index of each example in the split, -1 for padding.
    """

    examples: Examples
    counts: np.ndarray
    rounds: np.int32
    places: np.ndarray


def blocks(examples: Examples, size: int, rows: int, together: int) -> Iterator[ExampleBlock]:
    """Yield blocks of the first `size` examples in their order.

    Args:
        examples: Examples on the host.
        size: Number of examples to read.
        rows: Rows of every block, a multiple of `together`; equal rows let one program serve every split.
        together: Examples that the program processes at once.
    """
    for start in range(0, size, rows):
        stop = min(start + rows, size)
        cut = jax.tree.map(partial(_filled, start=start, stop=stop, rows=rows), examples)
        yield _block(cut, np.where(np.arange(rows) < stop - start, start + np.arange(rows), -1), together)


def blocks_of_streams(examples: Examples, size: int, rows: int, streams: int) -> Iterator[ExampleBlock]:
    """Yield blocks of the first `size` examples, where each of some streams reads consecutive ones.

    The streams are equal parts of the examples; the last may be shorter. Example t of stream b stands in row
    t * streams + b.

    Args:
        examples: Examples on the host, in the order of the text.
        size: Number of examples to read.
        rows: Rows of every block, a multiple of `streams`.
        streams: Number of streams, all of which the program processes at once.
    """
    length = -(-size // streams)
    places = np.arange(length)[:, None] + length * np.arange(streams)
    places = np.where(places < size, places, -1).ravel()
    for start in range(0, len(places), rows):
        part = places[start : start + rows]
        part = np.concatenate([part, np.full(rows - len(part), -1)])
        yield _block(jax.tree.map(lambda array, part=part: array[part], examples), part, streams)


def _block(examples: Examples, places: np.ndarray, together: int) -> ExampleBlock:
    rounds = -(-(1 + np.flatnonzero(places >= 0)[-1]) // together)
    return ExampleBlock(on_device(examples), (places >= 0).astype(np.float32), np.int32(rounds), places)


def _filled(part: np.ndarray, *, start: int, stop: int, rows: int) -> np.ndarray:
    missing = rows - (stop - start)
    part = part[start:stop]
    return np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)]) if missing else part
