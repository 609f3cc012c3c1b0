"""Complex numbers as planes: (..., 2, N) real arrays, real parts in plane 0 and imaginary parts in plane 1.

XLA keeps complex arrays interleaved, which vectorises badly, and Pallas has no complex type. With the planes
side by side, one real matrix product yields both, and multiplying by a constant is two fused multiply-adds.

Powers are computed by repeated squaring, carried in pairs of floats and rounded once. Squaring doubles a
relative error, so decay^4096 from 12 plain float32 squarings is wrong by up to 2e-4: the whole tolerance for
algorithms that skip over time. With a second float for the digits that the first cannot hold, every power is
right to the last bit or two. Compilers contract products and sums, which changes the remainder of a rounded
product. Here every product that matters is exact: its factors are halves of the digits, cut by their bits, so
that contraction changes nothing.

Source: Dekker, A floating-point technique for extending the available precision, 1971 (powers).
"""

from __future__ import annotations

from functools import partial

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.circle import cosine_sine

Twofold = tuple[Array, Array]
"""A number as an unevaluated sum: the nearest float, and the remainder."""


def planar(re: Array, im: Array) -> Array:
    """Stack real and imaginary parts (..., N) to planes (..., 2, N)."""
    return jnp.stack([re, im], axis=-2)


def polar(modulus: Array, angle: Array) -> Array:
    """Return modulus * exp(i * angle) as planes; angles in radians."""
    cosine, sine = cosine_sine(angle)
    return planar(modulus * cosine, modulus * sine)


def swap(a: Array) -> Array:
    """Exchange the planes."""
    return a[..., ::-1, :]


def conjugate(a: Array) -> Array:
    """Return the complex conjugate."""
    return planar(a[..., 0, :], -a[..., 1, :])


def factors(a: Array) -> tuple[Array, Array]:
    """Return (p, q) such that a * b = p * b + q * swap(b) for all b, each of the shape of `a`."""
    re, im = a[..., 0, :], a[..., 1, :]
    return planar(re, re), planar(-im, im)


def times(a: Array, b: Array) -> Array:
    """Return the complex product."""
    straight, crossed = factors(a)
    return straight * b + crossed * swap(b)


def rows(re: Array, im: Array) -> Array:
    """Join real and imaginary parts (N, D) to rows (2 N, D), in the order of planes."""
    return jnp.concatenate([re, im])


def into(u: Array, weights: Array, activations: str) -> Array:
    """Return the inputs of a recurrence, planes (L, 2, N).

    Args:
        u: (L, D).
        weights: Rows of B, (2 N, D).
        activations: Type that inputs and states are kept in, "float32" or "bfloat16".
    """
    inputs = _matmul(activations, u.astype(activations), weights.T.astype(activations))
    return inputs.reshape(len(u), 2, -1)


def real_part(states: Array, weights: Array) -> Array:
    """Return Re(C x) in float32, (L, D).

    Args:
        states: Planes (L, 2, N).
        weights: Rows of C, (2 N, D), imaginary ones negated.
    """
    return _matmul(weights.dtype.name, states.reshape(len(states), -1), weights.astype(states.dtype))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _matmul(dtype: str, series: Array, weights: Array) -> Array:
    """Return series (L, M) times weights (M, W) in a type at least as wide as both.

    Under `vmap` the gradient by the weights is computed sequence by sequence and then summed. For one product
    over batch and time, XLA for CPU would first transpose the series; without, a small model's training step
    takes 15 % less time.
    """
    return jnp.matmul(series, weights, preferred_element_type=jnp.dtype(dtype))


def _matmul_forward(dtype: str, series: Array, weights: Array) -> tuple[Array, tuple[Array, Array]]:
    return _matmul(dtype, series, weights), (series, weights)


def _matmul_backward(_: str, kept: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    series, weights = kept
    of_series = cotangent @ weights.T.astype(cotangent.dtype)
    of_weights = series.T.astype(cotangent.dtype) @ cotangent
    return of_series.astype(series.dtype), of_weights.astype(weights.dtype)


_matmul.defvjp(_matmul_forward, _matmul_backward)


def doublings(decay: Array, count: int) -> Array:
    """Return decay^(2^k) for k = 0 .. count - 1, planes (count, ..., 2, N).

    Args:
        decay: Planes (..., 2, N).
        count: Number of powers, at least 1.
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
    """Split the digits of `a` into two halves whose products are exact."""
    whole = jnp.int32 if a.dtype == jnp.float32 else jnp.int64
    kept = -(1 << (jnp.finfo(a.dtype).nmant + 1) // 2)
    bits = jax.lax.bitcast_convert_type(a, whole)
    high = jax.lax.bitcast_convert_type(bits & kept, a.dtype)
    return high, a - high
