"""Powers of decays by repeated squaring, carried in pairs of floats and rounded once.

Squaring doubles a relative error, so decay^4096 from 12 plain float32 squarings is wrong by up to 2e-4: as
much as the forms that jump over time may differ altogether. With a second float for what the first cannot
hold, every power is right to the last bit or two.

Source: Dekker, A floating-point technique for extending the available precision, 1971.
"""

from __future__ import annotations

from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.planar import planar, times

Twofold = tuple[Array, Array]
"""A number as an unevaluated sum: the nearest float, and what is left."""


def doublings(decay: Array, count: int) -> list[Array]:
    """Return decay^(2^k) for k = 0 .. count - 1.

    Args:
        decay: planes (..., 2, N).
        count: how many, at least 1.
    """
    zero = jnp.zeros_like(decay[..., 0, :])
    re, im = (decay[..., 0, :], zero), (decay[..., 1, :], zero)
    powers = [decay]
    for _ in range(count - 1):
        cross = _product(re, im)
        re, im = _minus(_product(re, re), _product(im, im)), (2 * cross[0], 2 * cross[1])
        powers.append(planar(re[0], im[0]))
    return powers


def _minus(a: Twofold, b: Twofold) -> Twofold:
    total = a[0] - b[0]
    grown = total - a[0]
    lost = (a[0] - (total - grown)) - (b[0] + grown)
    return _settle(total, lost + (a[1] - b[1]))


def _product(a: Twofold, b: Twofold) -> Twofold:
    product = a[0] * b[0]
    (high_a, low_a), (high_b, low_b) = _split(a[0]), _split(b[0])
    lost = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    return _settle(product, lost + (a[0] * b[1] + a[1] * b[0]))


def _split(a: Array) -> Twofold:
    """Halve the digits of `a`, so that products of the halves are exact."""
    digits = jnp.finfo(a.dtype).nmant + 1
    scaled = a * (2.0 ** ((digits + 1) // 2) + 1)
    high = scaled - (scaled - a)
    return high, a - high


def _settle(total: Array, lost: Array) -> Twofold:
    settled = total + lost
    return settled, lost - (settled - total)


def table(decay: Array, count: int) -> Array:
    """Return decay^k for k = 0 .. count - 1, planes (count, ..., 2, N), each a product of log2(k) powers."""
    one = jnp.zeros_like(decay).at[..., 0, :].set(1)[None]
    rows = one
    for power in doublings(decay, max(1, (count - 1).bit_length())):
        rows = jnp.concatenate([rows, times(power, rows)])
    return rows[:count]
