"""Losses and metrics as sums and counts, so that batches, micro-batches and masked rows add up exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
from jax import Array
from jax import numpy as jnp


class Sums(NamedTuple):
    """Weighted sums over what is counted: sequences, or the unpadded steps of an output by step."""

    loss: Array
    metric: Array
    counted: Array


def step_mask(lengths: Array, length: int) -> Array:
    """Return (..., L) booleans, true where a step lies inside its sequence of true length (...,)."""
    return jnp.arange(length) < lengths[..., None]


def classification(logits: Array, targets: Array, weights: Array) -> Sums:
    """Sum cross-entropy (nats) and right answers.

    Args:
        logits: (..., C).
        targets: (...,) int, classes.
        weights: (...,), 0 for what does not count.
    """
    kept = weights > 0
    chosen = jax.nn.one_hot(targets, logits.shape[-1], dtype=logits.dtype)
    losses = jax.nn.logsumexp(logits, axis=-1) - jnp.sum(chosen * logits, axis=-1)
    right = jnp.argmax(logits, axis=-1) == targets
    return Sums(jnp.sum(jnp.where(kept, losses, 0) * weights), jnp.sum(right * weights), jnp.sum(weights))


def regression(predictions: Array, targets: Array, weights: Array) -> Sums:
    """Sum squared errors.

    Args:
        predictions: (B, 1).
        targets: (B,) float.
        weights: (B,), 0 for what does not count.
    """
    squares = jnp.where(weights > 0, (predictions[..., 0] - targets) ** 2, 0) * weights
    total = jnp.sum(squares)
    return Sums(total, total, jnp.sum(weights))


LOSSES: Mapping[str, Callable[[Array, Array, Array], Sums]] = MappingProxyType(
    {"class": classification, "steps": classification, "value": regression}
)
"""The loss of each `Signature.output`."""


def weights_of(output: str, examples: Array, lengths: Array, length: int) -> Array:
    """Return what each prediction counts: (B,), or (B, L) for an output by step.

    Args:
        output: `Signature.output`.
        examples: (B,), 1 for an example that counts and 0 for one that fills a batch.
        lengths: (B,) true lengths; used for an output by step.
        length: L.
    """
    if output != "steps":
        return examples
    return examples[:, None] * step_mask(lengths, length)
