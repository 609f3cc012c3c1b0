"""The recurrence as a parallel prefix, in O(log L) depth.

The decay is the same at every step, so its leg of the scan is known beforehand: level k multiplies by
decay^(2^k), and only the states go through the tree.
"""

from __future__ import annotations

from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.planar import conjugate, factors, swap, times
from trainables.layers.recurrence.powers import doublings


def solve(decay: Array, inputs: Array, reverse: bool) -> Array:
    """Run x_t = decay * x_{t-1} + inputs_t from zero; shapes as in the sequential form."""
    length = inputs.shape[-3]
    powers = doublings(decay, max(1, (length - 1).bit_length()))
    series = jnp.flip(inputs, -3) if reverse else inputs
    states = _prefix([power[..., None, :, :] for power in powers], series.astype(decay.dtype))
    return (jnp.flip(states, -3) if reverse else states).astype(inputs.dtype)


def adjoint(decay: Array, states: Array, cotangent: Array, reverse: bool) -> tuple[Array, Array]:
    """Return the gradients by decay and inputs; arguments as in the sequential form."""
    gradients = solve(conjugate(decay), cotangent, not reverse)
    early, late = slice(None, -1), slice(1, None)
    before, after = (late, early) if reverse else (early, late)
    pairs = times(
        conjugate(states[..., before, :, :].astype(decay.dtype)),
        gradients[..., after, :, :].astype(decay.dtype),
    )
    return jnp.sum(pairs, axis=-3), gradients


def _prefix(powers: list[Array], series: Array) -> Array:
    """Return every prefix: pairs are joined, the half-length series is solved, and the gaps are filled."""
    length = series.shape[-3]
    if length == 1:
        return series
    straight, crossed = factors(powers[0])

    def advance(state: Array, more: Array) -> Array:
        return straight * state + crossed * swap(state) + more

    even, odd = series[..., 0::2, :, :], series[..., 1::2, :, :]
    at_odd = _prefix(powers[1:], advance(even[..., : length // 2, :, :], odd))
    first = even[..., :1, :, :]
    rest = advance(at_odd[..., : (length - 1) // 2, :, :], even[..., 1:, :, :])
    return _interleave(jnp.concatenate([first, rest], axis=-3), at_odd, length)


def _interleave(even: Array, odd: Array, length: int) -> Array:
    short = even.shape[-3] - odd.shape[-3]
    padded = jnp.concatenate([odd, even[..., :short, :, :]], axis=-3) if short else odd
    both = jnp.stack([even, padded], axis=-3)
    return both.reshape(*even.shape[:-3], -1, *even.shape[-2:])[..., :length, :, :]
