"""Programs of one's own on a small table: handwritten digits of scikit-learn, 64 numbers each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optax
from flax import linen, nnx
from jax import Array
from jax import numpy as jnp
from sklearn.datasets import load_digits

from trainables.program import Batch, Free, Linen, Nnx


def digits() -> dict[str, Batch]:
    """Return 1,400, 200 and 197 examples."""
    numbers, classes = load_digits(return_X_y=True)
    inputs, targets = (numbers / 16).astype(np.float32), classes.astype(np.int32)
    parts = {"train": slice(1400), "validation": slice(1400, 1600), "test": slice(1600, None)}
    return {name: {"inputs": inputs[part], "targets": targets[part]} for name, part in parts.items()}


class Perceptron(linen.Module):
    """One hidden layer, with dropout."""

    width: int

    @linen.compact
    def __call__(self, inputs: Array, train: bool) -> Array:
        hidden = linen.relu(linen.Dense(self.width)(inputs))
        hidden = linen.Dropout(0.1, deterministic=not train)(hidden)
        return linen.Dense(10)(hidden)


class Classifier:
    """What both programs share."""

    def data(self, folder: Path) -> Mapping[str, Batch]:
        return digits()

    def inputs(self, batch: Batch) -> Any:
        return batch["inputs"]

    def optimizer(self, free: Free) -> optax.GradientTransformation:
        return optax.adam(free["learning_rate"], b1=free.get("momentum", 0.9))

    def scores(self, outputs: Array, batch: Batch) -> Mapping[str, Array]:
        losses = optax.softmax_cross_entropy_with_integer_labels(outputs, batch["targets"])
        return {"loss": losses, "accuracy": jnp.float32(outputs.argmax(-1) == batch["targets"])}


class OfLinen(Classifier, Linen):
    """A linen module."""

    def __init__(self, width: int = 16) -> None:
        self.module = Perceptron(width)
        self.example = {"inputs": np.zeros((1, 64), np.float32)}


class OfNnx(Classifier, Nnx):
    """An nnx module, with running statistics and the state of its random numbers."""

    def __init__(self, width: int = 16) -> None:
        self.width = width

    def build(self, rngs: nnx.Rngs) -> nnx.Module:
        return nnx.Sequential(
            # A bias before the normalisation has no gradient but rounding errors, which Adam magnifies.
            nnx.Linear(64, self.width, use_bias=False, rngs=rngs),
            nnx.BatchNorm(self.width, rngs=rngs),
            nnx.relu,
            nnx.Dropout(0.1, rngs=rngs),
            nnx.Linear(self.width, 10, rngs=rngs),
        )
