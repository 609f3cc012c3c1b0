"""The recurrence as a parallel prefix, in O(log L) depth.

The decay is the same at every step, so its leg of the scan is known beforehand: level k multiplies by
decay^(2^k), and only the states go through the tree.
"""

from __future__ import annotations

from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.planar import conjugate, factors, swap, times
from trainables.layers.recurrence.powers import doublings
from trainables.layers.recurrence.prefix import Advance, prefixes


def solve(decay: Array, inputs: Array, reverse: bool) -> Array:
    """Run x_t = decay * x_{t-1} + inputs_t from zero; shapes as in the sequential algorithm."""
    series = jnp.moveaxis(inputs, -3, 0).astype(decay.dtype)
    powers = doublings(decay, max(1, (len(series) - 1).bit_length()))
    advances = [_advance(power) for power in powers]
    states = prefixes(advances, series[::-1])[::-1] if reverse else prefixes(advances, series)
    return jnp.moveaxis(states, 0, -3).astype(inputs.dtype)


def adjoint(decay: Array, states: Array, cotangent: Array, reverse: bool) -> tuple[Array, Array]:
    """Return the gradients by decay and inputs; arguments as in the sequential algorithm."""
    gradients = solve(conjugate(decay), cotangent, not reverse)
    early, late = slice(None, -1), slice(1, None)
    before, after = (late, early) if reverse else (early, late)
    pairs = times(
        conjugate(states[..., before, :, :].astype(decay.dtype)),
        gradients[..., after, :, :].astype(decay.dtype),
    )
    return jnp.sum(pairs, axis=-3), gradients


def _advance(power: Array) -> Advance:
    straight, crossed = factors(power)
    return lambda state, more: straight * state + crossed * swap(state) + more
