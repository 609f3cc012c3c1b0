"""A validation split for data sets that are published without one, and its order."""

from __future__ import annotations

import numpy as np

from trainables.errors import Refusal


def divided(task: str, examples: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide the training examples by seed; return the places of training and of validation, ascending.

    Args:
        task: for the refusal.
        examples: how many there are.
        share: of them goes to validation.
        seed: of the draw.

    Raises:
        Refusal: one of the two would be empty.
    """
    number = round(share * examples)
    if not 0 < number < examples:
        raise Refusal(
            f"task {task}: options.validation_share",
            "must leave examples on both sides",
            f"{share} of {examples} examples",
            "0.1 is usual.",
        )
    order = np.random.default_rng(seed).permutation(examples)
    return np.sort(order[number:]), np.sort(order[:number])


def mixed(examples: int, seed: int) -> np.ndarray:
    """Return the places of examples in an order of which any first part is a fair sample.

    For data sets that come class after class: a report reads the first so many examples of validation.
    """
    return np.random.default_rng(seed).permutation(examples)
