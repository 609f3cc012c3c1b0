"""The delta rule: a matrix S (K, V) that replaces what it answers to a key by a new value.

    S <- a_t S                                       a decay a_t in (0, 1], 1 without a gate
    S <- S + b_t k_t (v_t - S^T k_t)^T               a step of size b_t in (0, 2)
    o_t = S^T q_t                                    after every `every` steps

In a chunk from S_0, with D_ij = a_{j+1} ... a_i, every step is S <- a_i S + k_i u_i^T, and all u_i solve one
triangular system, so that the chunk is a few matrix products (the WY form):

    u_i + b_i sum_{j<i} D_ij (k_i . k_j) u_j = b_i (v_i - a_1 ... a_i S_0^T k_i)

Source: Yang et al., Parallelizing linear transformers with the delta rule, 2024, section 3; Yang et al.,
Gated delta networks, 2024, section 3.3 (decays); Siems et al., DeltaProduct, 2025 (several steps a row).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
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


def delta_rule(steps: Steps, state: Array, algorithm: str) -> tuple[Array, Array]:
    """Return the outputs of one head, (R / every, V), and its next state (K, V).

    Args:
        steps: for several steps an output, the last steps of each output answer its query.
        state: S before the first step, (K, V).
        algorithm: a name of `RULES`.
    """
    return RULES[algorithm](steps, state)


def _sequential(steps: Steps, state: Array) -> tuple[Array, Array]:
    together = len(steps.keys) // len(steps.queries)
    grouped = [part.reshape(-1, together, *part.shape[1:]) for part in steps[1:]]

    def token(state: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
        query, *parts = now
        for key, value, size, log_decay in zip(*parts, strict=True):
            state = jnp.exp(log_decay) * state
            state = state + jnp.outer(key, size * (value - key @ state))
        return state, query @ state

    state, outputs = jax.lax.scan(token, state, (steps.queries, *grouped))
    return outputs, state


def _chunked(steps: Steps, state: Array) -> tuple[Array, Array]:
    queries, keys, values, sizes, log_decays = steps
    along = jnp.cumsum(log_decays)
    earlier = jnp.tril(jnp.ones((len(keys),) * 2, bool))
    # Above the diagonal decays would be growth, which may overflow before it is masked.
    fading = jnp.where(earlier, jnp.exp(jnp.where(earlier, along[:, None] - along, 0)), 0)
    system = jnp.tril(sizes[:, None] * (keys @ keys.T) * fading, -1)
    kept = jnp.exp(along)[:, None]
    updates = _inverse(system) @ (sizes[:, None] * (values - kept * (keys @ state)))
    last = slice(len(keys) // len(queries) - 1, None, len(keys) // len(queries))
    outputs = kept[last] * (queries @ state) + ((queries @ keys.T) * fading[last]) @ updates
    return outputs, kept[-1] * state + (keys * jnp.exp(along[-1] - along)[:, None]).T @ updates


RULES: Mapping[str, Callable[[Steps, Array], tuple[Array, Array]]] = MappingProxyType(
    {"sequential": _sequential, "chunked": _chunked}
)
"""By name: (steps, state) -> outputs, next state."""


@jax.custom_vjp
def _inverse(lower: Array) -> Array:
    """Return (1 + A)^-1 for a strictly lower triangular A (n, n).

    Inverses of the diagonal blocks are joined to those of blocks twice as large: products that stay as small
    as the answer, unlike the powers of A. LAPACK's triangular solve is called once a matrix and takes 50
    times as long.
    """
    size = len(lower)
    whole = 1 << (size - 1).bit_length()
    return _halved(jnp.pad(lower, (0, whole - size)))[:size, :size]


def _forward(lower: Array) -> tuple[Array, Array]:
    inverse = _inverse(lower)
    return inverse, inverse


def _backward(inverse: Array, cotangent: Array) -> tuple[Array]:
    return (-(inverse.T @ cotangent @ inverse.T),)


_inverse.defvjp(_forward, _backward)


def _halved(lower: Array) -> Array:
    size = len(lower)
    if size <= SMALLEST:
        return _whole(lower)
    half = size // 2
    first, second = jax.vmap(_halved)(jnp.stack([lower[:half, :half], lower[half:, half:]]))
    below = -second @ (lower[half:, :half] @ first)
    return jnp.block([[first, jnp.zeros_like(first)], [below, second]])


def _whole(lower: Array) -> Array:
    index = jnp.arange(len(lower))
    inverse, block = jnp.eye(len(lower)), 1
    while block < len(lower):
        own = index // block
        below = (own[:, None] == own + 1) & (own[:, None] % 2 == 1)
        inverse = inverse - inverse @ (lower * below) @ inverse
        block *= 2
    return inverse
