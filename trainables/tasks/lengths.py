"""Tasks whose rule applies to any length, which are also tested on sequences longer than those of training.

Validation and test have the lengths of training. The further test splits x2, x4 and x8 hold sequences of up
to 2 L, 4 L and 8 L steps, of which only the later half is scored: x4 scores steps 2 L + 1 to 4 L. The lengths
of training therefore contribute nothing to these scores.

Every sequence belongs to one split. Short sequences, of which there are few, occur several times in training,
as in the published streams, but never in two splits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.data.cache import Writer
from trainables.data.task import IGNORED, SPLITS, Encoding, Output, Progress, Signature, Source, Task
from trainables.errors import Refusal
from trainables.settings import LARGEST_SEED, MOST_EXAMPLES, Option, Pooling
from trainables.tasks.division import Drawn, drawn

TIMES = (2, 4, 8)
"""Lengths of the further test splits, as multiples of the length L of training."""

OPTIONS: Mapping[str, Option] = {
    "length": Option(40, "L, the largest number of steps in training.", at_least=2),
    "min_length": Option(3, "The smallest number of steps, if `answer` is `end`.", at_least=1),
    "answer": Option(
        "end", "Whether only the last step has a target, or every step that has a value.", ("end", "steps")
    ),
    "reach": Option(8, "How many times L the longest sequences of test are.", (1, *TIMES)),
    "examples": Option(100_000, "Training sequences.", at_least=1, at_most=MOST_EXAMPLES),
    "held_out": Option(
        2000, "Sequences of validation, and of each test split.", at_least=1, at_most=MOST_EXAMPLES
    ),
    "seed": Option(0, "Seed of the sequences.", at_least=0, at_most=LARGEST_SEED),
}


def names_of_longer(options: Mapping[str, Any], times: Sequence[int] = TIMES) -> tuple[str, ...]:
    """Return the names of the test splits with multiples of the length L that the option `reach` allows."""
    return tuple(f"x{number}" for number in times if number <= options["reach"])


class LengthTask(Task):
    """A task of tokens whose sequences may have any length.

    With `answer: end`, lengths are uniform from `min_length` to L, and the last step decides the class of a
    sequence. With `answer: steps`, every sequence is as long as it may be, and every step with a value has a
    target.
    """

    version: ClassVar[int] = 2
    pooling: ClassVar[Pooling] = "last"

    @abstractmethod
    def sizes(self, options: Mapping[str, Any]) -> tuple[int, int]:
        """Return the number of tokens, padding included, and the number of classes."""

    @abstractmethod
    def draw(
        self, options: Mapping[str, Any], rng: np.random.Generator, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw sequences of at most some lengths.

        Args:
            options: Every option of the task.
            rng: Source of randomness.
            lengths: (n,) largest numbers of steps.

        Returns:
            Tokens (n, max(lengths)), zero beyond the true lengths; the true lengths (n,); and the value at
            every step (n, max(lengths)), `IGNORED` where a step has none. The last true step has one.
        """

    def further(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the test splits with longer sequences, such as "x2"."""
        return names_of_longer(options)

    def validate(self, options: Mapping[str, Any]) -> None:
        """Refuse a smallest length above the largest."""
        if options["min_length"] > options["length"]:
            raise Refusal(
                f"task {self.name}: options.min_length",
                f"must be at most the length, {options['length']}",
                str(options["min_length"]),
                "Give a smaller min_length, or a larger length.",
            )

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the source of generated data; nothing is read."""
        phrase = f"{self.phrase(options)}, up to {options['length']} steps (seed {options['seed']})"
        note = f"{options['examples']:,} training sequences instead of the published unlimited stream"
        return Source(phrase, comparable=False, note=note)

    @abstractmethod
    def phrase(self, options: Mapping[str, Any]) -> str:
        """Return a description of the generated data."""

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature of sequences of tokens."""
        vocabulary, classes = self.sizes(options)
        output: Output = "class" if options["answer"] == "end" else "steps"
        return Signature(output, classes, vocabulary, features=1, length=options["length"])

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write sequences of up to L steps for the three splits, and longer ones for further test splits."""
        length = options["length"]
        rng = np.random.default_rng(options["seed"])
        for split in SPLITS:
            rows = options["examples" if split == "train" else "held_out"]
            self._write(options, rng, out, split, rows, (options["min_length"], length))
            progress(f"generating {self.name}", SPLITS.index(split) + 1, len(SPLITS))
        for name in self.further(options):
            longest = int(name.removeprefix("x")) * length
            self._write(options, rng, out, f"test_{name}", options["held_out"], (longest // 2 + 1, longest))
        return Encoding(self.outline(options))

    def _write(
        self,
        options: Mapping[str, Any],
        rng: np.random.Generator,
        out: Writer,
        split: str,
        rows: int,
        between: tuple[int, int],
    ) -> None:
        """Write a split of sequences whose lengths lie in a range."""
        shortest, longest = between
        vocabulary, _ = self.sizes(options)
        inputs = out.array(f"{split}.inputs", (rows, longest), np.uint8 if vocabulary < 256 else np.uint16)
        lengths = out.array(f"{split}.lengths", (rows,), np.int32)
        by_step = options["answer"] == "steps"
        targets = out.array(f"{split}.targets", (rows, longest) if by_step else (rows,), np.int32)

        def draw(number: int) -> Drawn:
            asked = rng.integers(longest if by_step else shortest, longest, number, endpoint=True)
            tokens, true, values = self.draw(options, rng, asked)
            wide = ((0, 0), (0, longest - tokens.shape[1]))
            return np.pad(tokens, wide), true, np.pad(values, wide, constant_values=IGNORED)

        own = split if split in SPLITS else None  # longer sequences are in no other split anyway
        for kept, (tokens, true, values) in drawn(self.name, own, rows, longest, draw):
            inputs[kept], lengths[kept] = tokens, true
            if by_step:
                values[:, : _ignored(split, longest)] = IGNORED
                targets[kept] = values
            else:
                targets[kept] = values[np.arange(len(true)), true - 1]


def _ignored(split: str, longest: int) -> int:
    """Return the number of first steps that a split does not score: half of a longer sequence."""
    return longest // 2 if split not in SPLITS else 0
