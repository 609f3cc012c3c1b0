"""The protocol of evaluation: which examples are held out, and the score of a constant answer.

Validation is held out by seed where a data set is published without it. A trained model must beat the best
answer that ignores its inputs, chosen on the training split.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from trainables.data.task import IGNORED, SPLITS, Signature
from trainables.errors import Refusal

_STEPS_AT_ONCE = 64
"""Number of steps whose targets are read together, a cache line or more of each example."""


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


def constant_scores(
    signature: Signature, targets: Mapping[str, np.ndarray]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metric and the loss of a constant answer, on validation and on test.

    The answer is chosen on the training split alone: its mean, its most frequent class, or, for losses and
    bits, the rates of its classes, with 1/C added to the count of each of the C classes. With an answer a
    step, it depends on the number of the step if that lowers the loss from one half of the training examples
    to the other.

    Args:
        signature: Signature of the task.
        targets: Targets of the three splits, as they are stored; `IGNORED` ones do not count.

    Returns:
        The metric, and the loss in nats or squared units, each on "validation" and on "test".
    """
    train, held_out = targets["train"], {split: targets[split] for split in SPLITS[1:]}
    if signature.output == "value":
        mean = float(np.mean(train, dtype=np.float64))
        errors = {
            name: float(np.mean((part.astype(np.float64) - mean) ** 2)) for name, part in held_out.items()
        }
        return errors, errors
    classes = max(signature.classes, *(int(part.max()) + 1 for part in targets.values()))
    by_step = signature.output == "steps" and _depends_on_step(train, classes)
    scores = {name: _scores(train, part, classes, by_step=by_step) for name, part in held_out.items()}
    loss = {name: score.loss for name, score in scores.items()}
    if signature.metric == "bits":
        return {name: nats / math.log(2) for name, nats in loss.items()}, loss
    return {name: score.accuracy for name, score in scores.items()}, loss


class _Scores(NamedTuple):
    accuracy: float
    loss: float


def _depends_on_step(train: np.ndarray, classes: int) -> bool:
    """Return True if class rates by step of half the examples fit the others better than overall rates."""
    known, other = train[::2], train[1::2]
    if not (other != IGNORED).any():
        return False
    whole, by_step = (_scores(known, other, classes, by_step=one).loss for one in (False, True))
    return by_step < whole


def _scores(train: np.ndarray, scored: np.ndarray, classes: int, *, by_step: bool) -> _Scores:
    """Return the scores on targets (n,) or (n, L) of the most frequent class and of the rates of training."""
    whole = _rates(train, np.full(classes, 1 / classes))
    parts: Iterable[tuple[np.ndarray, np.ndarray]] = [(whole, scored)]
    if by_step:
        columns = zip(_columns(train), _columns(scored), strict=True)
        parts = ((_rates(known, whole), part) for known, part in columns)
    right = counted = loss = 0.0
    for rates, part in parts:
        counts = _counts(part, classes)
        right += counts[rates.argmax()]
        loss -= float(counts @ np.log(rates))
        counted += counts.sum()
    return _Scores(float(right / counted), float(loss / counted))


def _rates(targets: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return the class rates (C,) of the targets and one pseudo-target with the rates `prior` (C,)."""
    counts = _counts(targets, len(prior))
    return (counts + prior) / (counts.sum() + 1)


def _counts(targets: np.ndarray, classes: int) -> np.ndarray:
    return np.bincount(targets[targets != IGNORED], minlength=classes)


def _columns(targets: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the targets (n,) of each step, read from disk many steps at a time."""
    for start in range(0, targets.shape[1], _STEPS_AT_ONCE):
        yield from np.ascontiguousarray(targets[:, start : start + _STEPS_AT_ONCE].T)
