"""Complex numbers as `(re, im)` pairs of real arrays.

XLA keeps complex arrays interleaved, which no vector unit likes, and Pallas has no complex type at all.
"""

from __future__ import annotations

from jax import Array
from jax import numpy as jnp

Pair = tuple[Array, Array]
"""Real and imaginary part, of one shape."""


def times(a: Pair, b: Pair) -> Pair:
    """Return `a * b`."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def plus(a: Pair, b: Pair) -> Pair:
    """Return `a + b`."""
    return a[0] + b[0], a[1] + b[1]


def conjugate(a: Pair) -> Pair:
    """Return the complex conjugate of `a`."""
    return a[0], -a[1]


def polar(modulus: Array, angle: Array) -> Pair:
    """Return `modulus * exp(i * angle)`, the angle in radians."""
    return modulus * jnp.cos(angle), modulus * jnp.sin(angle)
