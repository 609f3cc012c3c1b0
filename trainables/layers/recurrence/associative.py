"""The recurrence as a parallel prefix, in O(log L) depth.

The decay is the same at every step, so its half of the scan is known beforehand: level k multiplies by
decay^(2^k), and only the states pass through the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.planar import conjugate, doublings, factors, swap, times

Advance = Callable[[Array, Array], Array]
"""(state, input) -> the state some fixed number of steps later, plus the input."""


def prefixes(advances: Sequence[Advance], series: Array) -> Array:
    """Return all states of x_t = advances[0](x_{t-1}, series_t) from zero, (L, ...).

    Neighbours are joined, the series of half the length is solved, and the states between are filled in.
    Neighbours lie on an axis of their own, so that cutting and joining are reshapes. With strided slices and
    interleaving, XLA for CPU fuses the levels into one another and compiles for minutes at L 1,024.

    Args:
        advances: Number k advances by 2^k steps; at least ceil(log2 L) of them.
        series: (L, ...).
    """
    length, rest = len(series), series.shape[1:]
    if length == 1:
        return series
    even_length = jnp.concatenate([series, jnp.zeros_like(series[:1])]) if length % 2 else series
    pairs = even_length.reshape(-1, 2, *rest)
    second = prefixes(advances[1:], advances[0](pairs[:, 0], pairs[:, 1]))
    before = jnp.concatenate([jnp.zeros_like(second[:1]), second[:-1]])
    first = advances[0](before, pairs[:, 0])
    return jnp.stack([first, second], axis=1).reshape(-1, *rest)[:length]


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
    return lambda state, more: _product(straight, state) + _product(crossed, swap(state)) + more


def _product(power: Array, state: Array) -> Array:
    """Return the product, 0 for a state of 0: the power of a growing decay may be infinite, or nan."""
    return jnp.where(state == 0, 0, power * state)
