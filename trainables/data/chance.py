"""What the best constant answer scores: the line that a trained model must beat."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np


def majority(targets: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the rate of the most frequent class of validation and of test.

    Args:
        targets: classes of "validation" and "test", of any shape.
    """
    return {
        split: float(np.bincount(np.ravel(targets[split])).max() / targets[split].size)
        for split in ("validation", "test")
    }


def entropy(targets: np.ndarray) -> float:
    """Return the cross-entropy, in nats, of always answering with the class frequencies of `targets`."""
    rates = np.bincount(np.ravel(targets)) / targets.size
    return -sum(rate * math.log(rate) for rate in rates.tolist() if rate > 0)


def constant(targets: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the mean squared error, on validation and on test, of always answering training's mean."""
    mean = float(np.mean(targets["train"], dtype=np.float64))
    return {
        split: float(np.mean((targets[split].astype(np.float64) - mean) ** 2))
        for split in ("validation", "test")
    }
