"""Text as character numbers, by one table look-up a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trainables.data.task import END, SPECIALS, UNKNOWN


@dataclass(frozen=True)
class Characters:
    """A vocabulary: padding, unknown, end, then `known` in order.

    Attributes:
        known: the characters, each once.
    """

    known: str

    @classmethod
    def of(cls, counts: Mapping[str, int], least: int = 1) -> Characters:
        """Return the characters that are counted at least `least` times, the most frequent first."""
        kept = (character for character, number in counts.items() if number >= least)
        return cls("".join(sorted(kept, key=lambda character: (-counts[character], character))))

    @property
    def size(self) -> int:
        """Number of tokens, the three special ones included."""
        return SPECIALS + len(self.known)

    @property
    def dtype(self) -> type[np.uint8] | type[np.uint16]:
        """The smallest type that holds every token."""
        return np.uint8 if self.size <= 256 else np.uint16

    def table(self) -> np.ndarray:
        """Return token numbers by code point (1,114,112,)."""
        table = np.full(0x110000, UNKNOWN, self.dtype)
        table[code_points(self.known)] = np.arange(SPECIALS, self.size)
        return table


def tokens_of(text: str, length: int, known: str) -> np.ndarray:
    """Return a text's token numbers (at most `length`,), cut off so that the end token fits."""
    row = np.zeros(length, np.int32)
    return row[: write(row, text, Characters(known).table())]


def code_points(text: str) -> np.ndarray:
    """Return the code points of a text as (L,) uint32."""
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def write(row: np.ndarray, text: str, table: np.ndarray) -> int:
    """Write a text into a row of zeros (L,), cut off so that the end token fits; return its true length."""
    tokens = table[code_points(text[: len(row) - 1])]
    row[: len(tokens)] = tokens
    row[len(tokens)] = END
    return len(tokens) + 1
