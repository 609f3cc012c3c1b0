"""Steps of the delta rule in one chunk of matrix products: the WY form.

In a chunk from S_0, with D_ij = a_{j+1} ... a_i, every step is S <- a_i S + k_i u_i^T, and all u_i solve one
triangular system:

    u_i + b_i sum_{j<i} D_ij (k_i . k_j) u_j = b_i (v_i - a_1 ... a_i S_0^T k_i)

Source: Yang et al., Parallelizing linear transformers with the delta rule, 2024, section 3; Yang et al.,
Gated delta networks, 2024, section 3.3 (decays); Siems et al., DeltaProduct, 2025 (several steps a row).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
from jax import Array
from jax import numpy as jnp

SMALLEST = 8
"""Triangular matrices up to this size are inverted whole, larger ones in halves."""


class Steps(NamedTuple):
    """The steps of one head.

    Attributes:
        queries: (R / every, K).
        keys: (R, K).
        values: (R, V).
        sizes: b, (R,).
        log_decays: log a, (R,).
    """

    queries: Array
    keys: Array
    values: Array
    sizes: Array
    log_decays: Array


def run_chunk(steps: Steps, state: Array, inverse: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Return the outputs of one chunk, (R / every, V), and the next state (K, V).

    Args:
        steps: all steps of the chunk.
        state: S before the first step, (K, V).
        inverse: A (R, R), strictly lower triangular -> the inverse of 1 + A.
    """
    queries, keys, values, sizes, log_decays = steps
    earlier = jnp.tril(jnp.ones((len(keys),) * 2, bool))
    # A masked sum, for kernels have no sum that runs backwards, which is the derivative of a running sum.
    along = jnp.sum(jnp.where(earlier, log_decays, 0), axis=1)
    # Above the diagonal decays would be growth, which may overflow before it is masked.
    fading = jnp.where(earlier, jnp.exp(jnp.where(earlier, along[:, None] - along, 0)), 0)
    system = jnp.tril(sizes[:, None] * (keys @ keys.T) * fading, -1)
    kept = jnp.exp(along)[:, None]
    updates = inverse(system) @ (sizes[:, None] * (values - kept * (keys @ state)))
    seen, kept_then = (_answering(rows, len(queries)) for rows in (fading, kept))
    outputs = kept_then * (queries @ state) + ((queries @ keys.T) * seen) @ updates
    whole = jnp.sum(log_decays)
    return outputs, jnp.exp(whole) * state + (keys * jnp.exp(whole - along)[:, None]).T @ updates


def _answering(rows: Array, count: int) -> Array:
    """Return the rows of those steps that answer a query: the last of each group."""
    together = len(rows) // count
    return rows if together == 1 else rows[together - 1 :: together]


def _with_rule(inverse: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return the function with the derivative of an inverse, which needs nothing but the answer."""
    differentiable = jax.custom_vjp(inverse)

    def forward(lower: Array) -> tuple[Array, Array]:
        answer = inverse(lower)
        return answer, answer

    def backward(answer: Array, cotangent: Array) -> tuple[Array]:
        return (-(answer.T @ cotangent @ answer.T),)

    differentiable.defvjp(forward, backward)
    return differentiable


def in_halves(lower: Array) -> Array:
    """Return (1 + A)^-1 for a strictly lower triangular A (n, n).

    Inverses of the diagonal blocks are joined to those of blocks twice as large: products that stay as small
    as the answer, unlike the powers of A. LAPACK's triangular solve is called once a matrix and takes 50
    times as long.
    """
    size = len(lower)
    whole = 1 << (size - 1).bit_length()
    return _halved(jnp.pad(lower, (0, whole - size)))[:size, :size]


def _halved(lower: Array) -> Array:
    size = len(lower)
    if size <= SMALLEST:
        return at_once(lower)
    half = size // 2
    first, second = jax.vmap(_halved)(jnp.stack([lower[:half, :half], lower[half:, half:]]))
    below = -second @ (lower[half:, :half] @ first)
    return jnp.block([[first, jnp.zeros_like(first)], [below, second]])


def at_once(lower: Array) -> Array:
    """Return the same by products of whole matrices, for n a power of two; no rows are cut."""
    index = jnp.arange(len(lower))
    inverse, block = jnp.eye(len(lower)), 1
    while block < len(lower):
        own = index // block
        below = (own[:, None] == own + 1) & (own[:, None] % 2 == 1)
        inverse = inverse - inverse @ (lower * below) @ inverse
        block *= 2
    return inverse


IN_HALVES, AT_ONCE = _with_rule(in_halves), _with_rule(at_once)
"""Both with the derivative of an inverse."""
