"""The protocol of evaluation: which examples are held out, and the score of the best constant answer.

Validation is held out by seed where a data set is published without it. A trained model must beat the best
constant answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from trainables.data.task import IGNORED
from trainables.errors import Refusal


def divided(task: str, examples: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide the training examples by seed; return the indices of training and of validation, ascending.

    Args:
        task: Name of the task, for messages.
        examples: Number of training examples.
        share: Share of the examples that is held out for validation.
        seed: Seed of the draw.

    Raises:
        Refusal: Training or validation would be empty.
    """
    number = round(share * examples)
    if not 0 < number < examples:
        raise Refusal(
            f"task {task}: options.validation_share",
            "must leave examples for training and for validation",
            f"{share} of {examples} examples",
            "0.1 is usual.",
        )
    order = np.random.default_rng(seed).permutation(examples)
    return np.sort(order[number:]), np.sort(order[:number])


def mixed(examples: int, seed: int) -> np.ndarray:
    """Return the indices of examples in an order in which the first part is a fair sample of all.

    Data sets that are sorted by class need it, because a report may read only the first validation examples.
    """
    return np.random.default_rng(seed).permutation(examples)


def majority(targets: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the rate of the most frequent class of validation and of test.

    Args:
        targets: Classes of "validation" and "test", of any shape; `IGNORED` ones do not count.
    """
    return {split: float(_rates(targets[split]).max()) for split in ("validation", "test")}


def entropy(targets: np.ndarray) -> float:
    """Return the cross-entropy, in nats, of always answering with the class frequencies of `targets`."""
    return -sum(rate * math.log(rate) for rate in _rates(targets).tolist() if rate > 0)


def _rates(targets: np.ndarray) -> np.ndarray:
    """Return the rate of each class among targets that are not `IGNORED`."""
    counted = targets[targets != IGNORED]
    return np.bincount(counted) / counted.size


def constant(targets: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the mean squared error, on validation and on test, of always answering training's mean."""
    mean = float(np.mean(targets["train"], dtype=np.float64))
    return {
        split: float(np.mean((targets[split].astype(np.float64) - mean) ** 2))
        for split in ("validation", "test")
    }
