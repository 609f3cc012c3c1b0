"""Parity: is the number of ones among the bits so far odd?

Bits are the tokens 1 and 2; 0 is padding. A decay between 0 and 1 cannot count modulo 2, whatever it depends
on; a sign or a rotation that depends on the input can.

Source: Grazzi et al. 2025 (arXiv 2411.12537), section 5.1 and table 3: uniform bits, lengths 3 to 40 in
training and 40 to 256 in test, the answer at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from trainables.data.task import IGNORED, Requirement
from trainables.settings import Option
from trainables.tasks.lengths import OPTIONS, LengthTask


class Parity(LengthTask):
    """Uniform bits; the value of a step is the sum of the bits so far, modulo 2."""

    name = "parity"
    title = "Parity: is the number of ones odd? Trained up to 40 bits, tested on longer rows; 2 classes"
    options: ClassVar[Mapping[str, Option]] = OPTIONS
    published: ClassVar[Mapping[str, Any]] = {"length": 40, "min_length": 3, "answer": "end"}

    def phrase(self, options: Mapping[str, Any]) -> str:
        """Return a description of the generated data."""
        return "rows of bits"

    def sizes(self, options: Mapping[str, Any]) -> tuple[int, int]:
        """Return the numbers of tokens and classes: three, with padding, and two."""
        return 3, 2

    def requires(self, options: Mapping[str, Any]) -> Requirement:
        """Return the requirement: memory of the whole length, regardless of the order."""
        return Requirement(options["length"] - 1, order=False)

    def draw(
        self, options: Mapping[str, Any], rng: np.random.Generator, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw sequences of bits; the target of each step is the parity so far."""
        bits = rng.integers(2, size=(len(lengths), lengths.max()), dtype=np.uint8)
        inside = np.arange(lengths.max()) < lengths[:, None]
        values = np.bitwise_xor.accumulate(bits, axis=1).astype(np.int32)
        return np.where(inside, bits + 1, 0), lengths, np.where(inside, values, IGNORED)
