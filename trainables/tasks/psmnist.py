"""Permuted sequential MNIST: the pixels in one fixed, shuffled order.

The papers do not agree on the order, so its name is an option and part of the record: `seed-92916` is
`RandomState(92916).permutation(784)`, `bit-reversal` is the one of S4 and S5. LDStack used a list of its own.

Source: Le et al. 2015.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from trainables.settings import Option
from trainables.tasks.smnist import PIXELS, SequentialMnist

_BITS = 10
_SEED = 92916


class PermutedMnist(SequentialMnist):
    """Digits pixel by pixel, in a fixed random order."""

    name = "psmnist"
    title = "Permuted sequential MNIST: pixels in a fixed random order (L = 784), 10 classes"
    options: ClassVar[Mapping[str, Option]] = {
        "permutation": Option(
            "seed-92916", "The order of the pixels.", choices=("seed-92916", "bit-reversal")
        ),
        **SequentialMnist.options,
    }

    def order(self, options: Mapping[str, Any]) -> str:
        """Name the permutation."""
        return f"pixels permuted by {options['permutation']}"

    def places(self, options: Mapping[str, Any]) -> np.ndarray:
        """Return the pixel that each step reads (784,)."""
        if options["permutation"] == "seed-92916":
            return np.random.RandomState(_SEED).permutation(PIXELS)
        reversed_bits = [int(f"{step:0{_BITS}b}"[::-1], 2) for step in range(2**_BITS)]
        return np.array([place for place in reversed_bits if place < PIXELS])
