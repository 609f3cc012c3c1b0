"""Copy memory: ten symbols, a long blank, and then the same ten symbols.

A sequence has T + 20 steps: ten symbols of 1 to 8, blanks (0), a delimiter (9) eleven steps before the end,
and blanks to be filled in. The target is blank except in its last ten steps. These are the published tokens:
the task has no padding, no unknown and no end token.

Source: Kaul 2020 (LDStack), section 6; Arjovsky et al. 2016.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.data.cache import Writer
from trainables.data.task import SPLITS, Encoding, Progress, Requirement, Signature, Source, Task
from trainables.settings import LARGEST_SEED, MOST_EXAMPLES, Option

_SYMBOLS = 8
_COPIED = 10
_BLANK, _DELIMITER = 0, 9


class Copy(Task):
    """Recall ten symbols after T blanks; cross-entropy over every step."""

    name = "copy"
    title = "Copy memory: ten symbols after T steps; one of 9 classes a step"
    published: ClassVar[Mapping[str, Any]] = {"delay": (300, 500, 2000), "examples": 10_000}
    options: ClassVar[Mapping[str, Option]] = {
        "delay": Option(
            300,
            "T, the steps for which the symbols must be remembered; published: 300, 500, 2000.",
            at_least=1,
        ),
        "examples": Option(10_000, "Training sequences.", at_least=1, at_most=MOST_EXAMPLES),
        "held_out": Option(1000, "Sequences of validation, and of test.", at_least=1, at_most=MOST_EXAMPLES),
        "seed": Option(0, "Seed of the symbols.", at_least=0, at_most=LARGEST_SEED),
    }

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the source of generated data; nothing is read."""
        phrase = f"copy sequences generated with T = {options['delay']} (seed {options['seed']})"
        return Source(phrase, comparable=True)

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature of sequences of symbols."""
        length = options["delay"] + 2 * _COPIED
        return Signature("steps", _SYMBOLS + 1, _DELIMITER + 1, features=1, length=length)

    def requires(self, options: Mapping[str, Any]) -> Requirement:
        """Return the distance between a symbol and the step that recalls it."""
        return Requirement(options["delay"] + _COPIED, order=True)

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write sequences, no two of which have the same symbols."""
        length = options["delay"] + 2 * _COPIED
        sizes = (options["examples"], options["held_out"], options["held_out"])
        symbols = _distinct(np.random.default_rng(options["seed"]), sum(sizes))
        for split, part in zip(SPLITS, np.split(symbols, np.cumsum(sizes[:-1])), strict=True):
            inputs = out.array(f"{split}.inputs", (len(part), length), np.uint8)
            inputs[:, :_COPIED] = part
            inputs[:, -_COPIED - 1] = _DELIMITER
            out.array(f"{split}.targets", (len(part), length), np.int32)[:, -_COPIED:] = part
            out.put(f"{split}.lengths", np.full(len(part), length, np.int32))
            progress("generating copy sequences", SPLITS.index(split) + 1, len(SPLITS))
        return Encoding(self.outline(options))


def _distinct(rng: np.random.Generator, number: int) -> np.ndarray:
    """Draw distinct rows of symbols (number, 10), in the order drawn."""
    rows = rng.integers(
        1, _SYMBOLS, endpoint=True, size=(number + number // 100 + 10, _COPIED), dtype=np.uint8
    )
    first = np.unique(rows, axis=0, return_index=True)[1]
    distinct = rows[np.sort(first)][:number]
    assert len(distinct) == number, "8^10 rows are possible"
    return distinct
