"""A perceptron for handwritten digits, of which many trials train in one compiled program."""

import numpy as np
import optax
from flax import linen
from sklearn.datasets import load_digits

from trainables.program import Linen


class Net(Linen):
    """One hidden layer and a classifier."""

    free = ("learning_rate",)  # a new value compiles nothing

    def __init__(self, width=32):  # a new value compiles another program
        self.module = linen.Sequential([linen.Dense(width), linen.relu, linen.Dense(10)])
        self.example = {"x": np.zeros((1, 64), np.float32)}

    def data(self, folder):
        x, y = load_digits(return_X_y=True)
        parts = {"train": slice(1400), "validation": slice(1400, 1600), "test": slice(1600, None)}
        return {name: {"x": np.float32(x[part] / 16), "y": np.int32(y[part])} for name, part in parts.items()}

    def inputs(self, batch):
        return batch["x"]

    def optimizer(self, free):
        return optax.adam(free["learning_rate"])

    def scores(self, outputs, batch):
        losses = optax.softmax_cross_entropy_with_integer_labels(outputs, batch["y"])
        return {"loss": losses, "accuracy": outputs.argmax(-1) == batch["y"]}
