"""The recurrence as a parallel prefix, in O(log L) depth."""

from __future__ import annotations

import jax
from jax import numpy as jnp

from trainables.layers.recurrence.complex import Pair, plus, times

Element = tuple[Pair, Pair]


def associative(decay: Pair, inputs: Pair, reverse: bool) -> Pair:
    """Run x_t = decay * x_{t-1} + inputs_t from zero as a parallel prefix.

    Args:
        decay: (N,).
        inputs: (L, N).
        reverse: whether time runs from L - 1 down to 0.

    Returns:
        All states, (L, N).
    """

    def join(first: Element, second: Element) -> Element:
        return times(first[0], second[0]), plus(times(second[0], first[1]), second[1])

    decays = tuple(jnp.broadcast_to(part, inputs[0].shape) for part in decay)
    return jax.lax.associative_scan(join, (decays, inputs), reverse=reverse)[1]
