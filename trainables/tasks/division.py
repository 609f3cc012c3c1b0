"""The division of generated sequences among splits: each belongs to one, by a hash of its tokens.

A sequence that is drawn several times always belongs to the same split, so splits are disjoint even if a rule
allows few sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from trainables.errors import Refusal

_SHARES: Mapping[str, range] = MappingProxyType(
    {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}
)
"""Tenths of all sequences that belong to each split."""

_MOST_ROWS = 20_000
"""Largest number of rows that are drawn at once."""

_MOST_TOKENS = 2**27
"""Largest number of tokens that are drawn at once; they take 1 GiB as 64-bit numbers."""

_FRUITLESS = 50
"""Number of rounds without a sequence of a split after which the split counts as empty."""

Drawn = tuple[np.ndarray, ...]
"""Arrays with equal numbers of rows, of which the first holds the tokens (n, L)."""


def drawn(
    task: str, split: str | None, rows: int, length: int, draw: Callable[[int], Drawn]
) -> Iterator[tuple[slice, Drawn]]:
    """Draw sequences until there are enough of a split.

    Args:
        task: Name of the task, for messages.
        split: "train", "validation" or "test"; None for all sequences.
        rows: Number of sequences of the split.
        length: L, the length of the longest sequence.
        draw: Function of a number of rows that returns their arrays.

    Yields:
        The range of the next rows, and their arrays.

    Raises:
        Refusal: The rule has no sequence for the split.
    """
    share = 1.0 if split is None else len(_SHARES[split]) / 10
    most = max(1, min(_MOST_ROWS, _MOST_TOKENS // length))
    done, fruitless = 0, 0
    while done < rows:
        parts = draw(min(most, 16 + round(1.5 * (rows - done) / share)))
        own = np.arange(len(parts[0]))
        if split is not None:
            own = np.flatnonzero(np.isin(tenths(parts[0]), _SHARES[split]))
        own = own[: rows - done]
        fruitless = 0 if own.size else fruitless + 1
        if fruitless == _FRUITLESS:
            must, remedy = (
                "must allow sequences for three splits",
                "Ask for longer ones, or for more symbols.",
            )
            raise Refusal(f"task {task}: options", must, f"none for {split}", remedy)
        yield slice(done, done + own.size), tuple(part[own] for part in parts)
        done += own.size


def tenths(tokens: np.ndarray) -> np.ndarray:
    """Return a number from 0 to 9 for each sequence (n, L), by a hash of all its columns, zeros included.

    The splits of a task hold a sequence in arrays of one width, so that it has one number in all of them.
    """
    mixed = np.zeros(len(tokens), np.uint64)
    for column in tokens.T.astype(np.uint64):
        mixed = np.where(column > 0, (mixed + column) * np.uint64(0x9E3779B97F4A7C15), mixed)
        mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(32)) % np.uint64(10)
