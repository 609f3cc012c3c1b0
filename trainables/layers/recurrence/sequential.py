"""The recurrence one step after the other: the reference."""

from __future__ import annotations

import jax
from jax import numpy as jnp

from trainables.layers.recurrence.complex import Pair, plus, times


def sequential(decay: Pair, inputs: Pair, reverse: bool) -> Pair:
    """Run x_t = decay * x_{t-1} + inputs_t from zero, one step after the other.

    Args:
        decay: (N,).
        inputs: (L, N).
        reverse: whether time runs from L - 1 down to 0.

    Returns:
        All states, (L, N).
    """

    def step(state: Pair, now: Pair) -> tuple[Pair, Pair]:
        state = plus(times(decay, state), now)
        return state, state

    zero = jnp.zeros_like(inputs[0][0])
    return jax.lax.scan(step, (zero, zero), inputs, reverse=reverse, unroll=4)[1]
