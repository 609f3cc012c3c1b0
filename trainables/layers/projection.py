"""Into the states and out of them: one real matrix product each, in float32 or bfloat16."""

from __future__ import annotations

from jax import Array
from jax import numpy as jnp


def rows(re: Array, im: Array) -> Array:
    """Join real and imaginary parts (N, D) to rows (2 N, D), in the order of planes."""
    return jnp.concatenate([re, im])


def into(u: Array, weights: Array, activations: str) -> Array:
    """Return the inputs of a recurrence, planes (L, 2, N).

    Args:
        u: (L, D).
        weights: rows of B, (2 N, D).
        activations: type that inputs and states are kept in, "float32" or "bfloat16".
    """
    inputs = (
        u @ weights.T if activations == "float32" else u.astype(activations) @ weights.T.astype(activations)
    )
    return inputs.reshape(len(u), 2, -1)


def real_part(states: Array, weights: Array) -> Array:
    """Return Re(C x) in float32, (L, D).

    Args:
        states: planes (L, 2, N).
        weights: rows of C, (2 N, D), imaginary ones negated.
    """
    return jnp.matmul(
        states.reshape(len(states), -1), weights.astype(states.dtype), preferred_element_type=weights.dtype
    )


def real_states(states: Array) -> Array:
    """Return planes (L, 2, N) as (L, 2 N): real parts, then imaginary parts; moduli become norms."""
    return states.reshape(len(states), -1)
