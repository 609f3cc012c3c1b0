"""Tasks of recall: tokens by a published rule, with targets at the steps of queries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.data.cache import Writer
from trainables.data.task import IGNORED, SPLITS, Encoding, Progress, Source, Task
from trainables.settings import LARGEST_SEED, MOST_EXAMPLES, Option
from trainables.tasks.division import drawn
from trainables.tasks.lengths import TIMES

SIZES: Mapping[str, Option] = {
    "examples": Option(100_000, "Training sequences.", at_least=1, at_most=MOST_EXAMPLES),
    "held_out": Option(
        3000, "Sequences of validation, and of each test split.", at_least=1, at_most=MOST_EXAMPLES
    ),
    "seed": Option(0, "Seed of the sequences.", at_least=0, at_most=LARGEST_SEED),
}

REACH = Option(1, "How many times L the longest sequences of test are.", (1, *TIMES))


@dataclass(frozen=True)
class Part:
    """Sequences of one kind in a split.

    Attributes:
        length: Number of steps of a sequence.
        items: Number of pairs, or of tokens to copy, in a sequence.
        rows: Number of sequences.
    """

    length: int
    items: int
    rows: int


class RecallTask(Task):
    """A task whose splits are mixtures of sequences of different lengths, a target at some of their steps.

    Tokens are numbered from 1, because 0 is padding. A sequence belongs to one split; further test splits
    share those of test.
    """

    version: ClassVar[int] = 2

    @abstractmethod
    def parts(self, options: Mapping[str, Any], split: str) -> tuple[Part, ...]:
        """Return the parts of a split: "train", "validation", "test", or a further test split."""

    @abstractmethod
    def draw(
        self, options: Mapping[str, Any], rng: np.random.Generator, part: Part, rows: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw sequences of one kind.

        Returns:
            Tokens (rows, length), numbered from 1, and targets (rows, length), `IGNORED` where there is none.
        """

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write the sequences of each split, its kinds mixed."""
        further = tuple(f"test_{name}" for name in self.further(options))
        for number, split in enumerate((*SPLITS, *further)):
            rng = np.random.default_rng([options["seed"], number])
            self._write(options, rng, out, split)
            progress(f"generating {self.name}", number + 1, len(SPLITS) + len(further))
        signature = self.outline(options)
        assert signature is not None
        return Encoding(signature)

    def _write(self, options: Mapping[str, Any], rng: np.random.Generator, out: Writer, split: str) -> None:
        parts = self.parts(options, split)
        shape = sum(part.rows for part in parts), max(part.length for part in parts)
        signature = self.outline(options)
        assert signature is not None
        assert signature.vocabulary is not None
        inputs = out.array(f"{split}.inputs", shape, np.uint8 if signature.vocabulary < 256 else np.uint16)
        targets = out.array(f"{split}.targets", shape, np.int32)
        lengths = out.array(f"{split}.lengths", shape[:1], np.int32)
        targets[...] = IGNORED
        places, start, own_split = rng.permutation(shape[0]), 0, split.partition("_")[0]
        for part in parts:
            own, start = places[start : start + part.rows], start + part.rows
            lengths[own] = part.length
            draw = partial(self.draw, options, rng, part)
            for kept, (tokens, asked) in drawn(self.name, own_split, part.rows, part.length, draw):
                inputs[own[kept], : part.length], targets[own[kept], : part.length] = tokens, asked

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the source of generated data; nothing is read."""
        note = self.departure(options)
        phrase = f"{self.phrase(options)} (seed {options['seed']})"
        return Source(phrase, comparable=not note, note=note)

    @abstractmethod
    def phrase(self, options: Mapping[str, Any]) -> str:
        """Return a description of the generated data."""

    @abstractmethod
    def departure(self, options: Mapping[str, Any]) -> str:
        """Return differences from the published sequences, besides options; '' without any."""


def times_of(split: str) -> int:
    """Return the length of the sequences of a split as a multiple of L: 8 for "test_x8", 1 for "test"."""
    return int(split.removeprefix("test_x")) if split.startswith("test_x") else 1


def chosen(rng: np.random.Generator, rows: int, count: int, choices: int) -> np.ndarray:
    """Return (rows, count) different numbers below `choices` in each row, uniform and in random order.

    Source: Floyd's algorithm, Bentley & Floyd 1987, Communications of the ACM 30(9).
    """
    taken = np.full((rows, count), -1)
    for place, last in enumerate(range(choices - count, choices)):
        number = rng.integers(last, size=rows, endpoint=True)
        is_taken = (taken[:, :place] == number[:, None]).any(axis=1)
        taken[:, place] = np.where(is_taken, last, number)
    return rng.permuted(taken, axis=1)


def weighted(rng: np.random.Generator, rows: int, count: int, weights: np.ndarray) -> np.ndarray:
    """Return (rows, count) different places of `weights` in each row, drawn one after another.

    The order of exponential times with these rates is that of weighted draws without replacement.

    Source: Efraimidis & Spirakis 2006, Information Processing Letters 97, algorithm A.
    """
    times = rng.exponential(size=(rows, len(weights))) / weights
    return np.argsort(times, axis=1)[:, :count]
