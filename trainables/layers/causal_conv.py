"""The short causal convolution of each channel that input-dependent layers read through."""

from __future__ import annotations

import jax
from jax import Array
from jax import numpy as jnp


def causal_conv(weights: Array, before: Array, rows: Array) -> tuple[Array, Array]:
    """Return y_t = sum_j weights[:, j] x_{t - W + 1 + j}, and the last rows.

    Args:
        weights: (C, W); the last column weighs the present row.
        before: The W - 1 rows before the first, (W - 1, C).
        rows: x, (L, C).

    Returns:
        (L, C), and the rows (W - 1, C) that precede the next one.
    """
    whole, length = jnp.concatenate([before, rows]), len(rows)
    outputs = sum(weights[:, j] * whole[j : j + length] for j in range(weights.shape[1]))
    return jnp.asarray(outputs), whole[length:]


def initial_conv(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw weights (..., W) uniformly within 1 / sqrt(W), as the published implementations do."""
    bound = shape[-1] ** -0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
