"""Powers of decays by repeated squaring, carried in pairs of floats and rounded once.

Squaring doubles a relative error, so decay^4096 from 12 plain float32 squarings is wrong by up to 2e-4: as
much as algorithms that jump over time may differ in all. With a second float for what the first cannot hold,
every power is right to the last bit or two.

Compilers contract products and sums, which changes what a rounded product leaves over. Here every product
that counts is exact, of halves of the digits cut by their bits, so that contraction changes nothing.

Source: Dekker, A floating-point technique for extending the available precision, 1971.
"""

from __future__ import annotations

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.planar import planar, times

Twofold = tuple[Array, Array]
"""A number as an unevaluated sum: the nearest float, and what is left."""


def doublings(decay: Array, count: int) -> Array:
    """Return decay^(2^k) for k = 0 .. count - 1, planes (count, ..., 2, N).

    Args:
        decay: planes (..., 2, N).
        count: how many, at least 1.
    """

    def step(power: tuple[Twofold, Twofold], _: None) -> tuple[tuple[Twofold, Twofold], Array]:
        power = square(*power)
        return power, planar(power[0][0], power[1][0])

    zero = jnp.zeros_like(decay[..., 0, :])
    start = (decay[..., 0, :], zero), (decay[..., 1, :], zero)
    return jnp.concatenate([decay[None], jax.lax.scan(step, start, length=count - 1)[1]])


def square(re: Twofold, im: Twofold) -> tuple[Twofold, Twofold]:
    """Return the real and the imaginary part of a complex number's square."""
    cross = _product(re, im)
    return _minus(_product(re, re), _product(im, im)), (2 * cross[0], 2 * cross[1])


def table(decay: Array, count: int) -> Array:
    """Return decay^k for k = 0 .. count - 1, planes (count, ..., 2, N), each a product of log2(k) powers."""
    rows = jnp.zeros_like(decay).at[..., 0, :].set(1)[None]
    for power in doublings(decay, max(1, (count - 1).bit_length())):
        rows = jnp.concatenate([rows, times(power, rows)])
    return rows[:count]


def _product(a: Twofold, b: Twofold) -> Twofold:
    (high_a, low_a), (high_b, low_b) = _halves(a[0]), _halves(b[0])
    small = low_a * low_b + (a[0] * b[1] + a[1] * b[0])
    return _settle(high_a * high_b, (high_a * low_b + low_a * high_b) + small)


def _minus(a: Twofold, b: Twofold) -> Twofold:
    total = a[0] - b[0]
    grown = total - a[0]
    lost = (a[0] - (total - grown)) - (b[0] + grown)
    return _settle(total, lost + (a[1] - b[1]))


def _settle(total: Array, lost: Array) -> Twofold:
    settled = total + lost
    return settled, lost - (settled - total)


def _halves(a: Array) -> Twofold:
    """Cut the digits of `a` in two halves, the products of which are exact."""
    whole = jnp.int32 if a.dtype == jnp.float32 else jnp.int64
    kept = -(1 << (jnp.finfo(a.dtype).nmant + 1) // 2)
    bits = jax.lax.bitcast_convert_type(a, whole)
    high = jax.lax.bitcast_convert_type(bits & kept, a.dtype)
    return high, a - high
