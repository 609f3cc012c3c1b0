"""A nonlinear RNN as a stack of linear systems, each corrected where the one before was not nonlinear.

    h^0_t = A h^0_{t-1} + B u_t
    h^i_t = A h^i_{t-1} + B u_t + delta(A h^{i-1}_{t-1} + B u_t),   delta(a) = rho(a) - a

Source: LDStack, section 5, equation 6.
"""

from __future__ import annotations

from collections.abc import Callable

from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence import linear_recurrence


def stacked_states(
    transition: Array,
    weights: Array,
    rho: Callable[[Array], Array],
    u: Array,
    depth: int,
    *,
    algorithm: str = "auto",
) -> Array:
    """Return the states of every layer of the plain stack, (depth, L, n), from zero.

    State t is the one after input t is in; that of layer i is the RNN's for the first i steps.

    Args:
        transition: A, (n, n).
        weights: B, (n, d).
        rho: the nonlinearity.
        u: (L, d).
        depth: number of layers, at least 1.
        algorithm: algorithm of the recurrence: "sequential", "associative" or "auto".
    """
    driven = u @ weights.T
    layers, correction = [], jnp.zeros_like(driven)
    for _ in range(depth):
        states = linear_recurrence(transition, driven + correction, algorithm=algorithm)
        layers.append(states)
        before = jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]])
        reached = before @ transition.T + driven
        correction = rho(reached) - reached
    return jnp.stack(layers)
