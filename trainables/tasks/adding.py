"""The adding problem: the sum of the two marked numbers of a long list.

A step has two features, a number of U[0, 1) and a marker; one step of each half is marked. Always answering 1
has a mean squared error of 1/6. The answer is read at the last step: the mean over all steps would add the
marked numbers up without any memory.

Source: Kaul 2020 (LDStack), section 6; Hochreiter & Schmidhuber 1997.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.data.cache import Writer
from trainables.data.task import SPLITS, Encoding, Metric, Progress, Requirement, Signature, Source, Task
from trainables.settings import LARGEST_SEED, MOST_EXAMPLES, Option, Pooling

_ROWS_AT_ONCE = 1000


class Adding(Task):
    """Add the two marked numbers; mean squared error."""

    name = "adding"
    title = "Adding problem: the sum of two marked numbers among T; a real value"
    metric: ClassVar[Metric] = "mse"
    pooling: ClassVar[Pooling] = "last"
    # The lengths are LDStack's, whose notebook draws new lists at every step; 50,000 lists are those of
    # state-spaces/s4 (configs/dataset/adding.yaml).
    published: ClassVar[Mapping[str, Any]] = {"length": (100, 200, 400, 750), "examples": 50_000}
    options: ClassVar[Mapping[str, Option]] = {
        "length": Option(100, "T, the length of a list; published: 100, 200, 400, 750.", at_least=2),
        "examples": Option(50_000, "Training lists.", at_least=1, at_most=MOST_EXAMPLES),
        "held_out": Option(2000, "Lists of validation, and of test.", at_least=1, at_most=MOST_EXAMPLES),
        "seed": Option(0, "Seed of the numbers and markers.", at_least=0, at_most=LARGEST_SEED),
    }

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the source of generated data; nothing is read."""
        phrase = f"adding problems generated with T = {options['length']} (seed {options['seed']})"
        return Source(phrase, comparable=True)

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature of lists of numbers and markers."""
        return Signature("value", 1, None, features=2, length=options["length"], metric="mse")

    def requires(self, options: Mapping[str, Any]) -> Requirement:
        """Return the requirement: memory of the whole length, because the first step may be marked.

        With mean pooling no memory is needed, because the sum of number times marker is the answer.
        """
        return Requirement(options["length"] - 1, order=False)

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write lists, markers and sums."""
        length = options["length"]
        for number, split in enumerate(SPLITS):
            examples = options["examples" if split == "train" else "held_out"]
            rng = np.random.default_rng([options["seed"], number])
            inputs = out.array(f"{split}.inputs", (examples, length, 2), np.float32)
            targets = out.array(f"{split}.targets", (examples,), np.float32)
            for start in range(0, examples, _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                targets[rows] = _fill(rng, inputs[rows])
                progress(f"generating adding problems: {split}", min(rows.stop, examples), examples)
            out.put(f"{split}.lengths", np.full(examples, length, np.int32))
        return Encoding(self.outline(options))


def _fill(rng: np.random.Generator, inputs: np.ndarray) -> np.ndarray:
    """Fill lists of zeros (n, T, 2) with numbers and markers; return the sums (n,)."""
    examples, length, _ = inputs.shape
    row, half = np.arange(examples), length // 2
    inputs[:, :, 0] = rng.random((examples, length), np.float32)
    first, second = rng.integers(half, size=examples), rng.integers(half, length, size=examples)
    inputs[row, first, 1] = inputs[row, second, 1] = 1
    return inputs[row, first, 0] + inputs[row, second, 0]
