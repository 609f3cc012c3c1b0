"""Complex numbers as planes: (..., 2, N) real arrays, real parts in plane 0 and imaginary parts in plane 1.

XLA keeps complex arrays interleaved, which no vector unit likes, and Pallas has no complex type at all. With
the planes side by side, one real matrix product yields both, and times a constant is two fused multiply-adds.
"""

from __future__ import annotations

import jax
from jax import Array
from jax import numpy as jnp


def planar(re: Array, im: Array) -> Array:
    """Stack real and imaginary parts (..., N) to planes (..., 2, N)."""
    return jnp.stack([re, im], axis=-2)


def polar(modulus: Array, angle: Array) -> Array:
    """Return modulus * exp(i * angle) as planes; angles in radians."""
    return planar(modulus * jnp.cos(angle), modulus * jnp.sin(angle))


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


def as_complex(a: Array) -> Array:
    """Return planes (..., 2, N) as complex numbers (..., N)."""
    return jax.lax.complex(a[..., 0, :], a[..., 1, :])
