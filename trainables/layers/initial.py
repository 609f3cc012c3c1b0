"""Distributions of initial parameters."""

from __future__ import annotations

from typing import TypeAlias

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

Bounds: TypeAlias = tuple[float | Array, float | Array]
"""An initialisation range (low, high), whose ends may be traced."""


def ring(key: Array, shape: tuple[int, ...], bounds: Bounds) -> Array:
    """Draw eigenvalues uniformly on the ring of moduli in `bounds`; return -log(modulus).

    Source: LRU, lemma 2.
    """
    low, high = bounds
    return -0.5 * jnp.log(_uniform(key, shape) * (high**2 - low**2) + low**2)


def between(key: Array, shape: tuple[int, ...], bounds: Bounds) -> Array:
    """Draw uniformly between two bounds, the lower one excluded."""
    low, high = bounds
    return low + _uniform(key, shape) * (high - low)


def log_between(key: Array, shape: tuple[int, ...], bounds: Bounds) -> Array:
    """Draw uniformly between the logarithms of two bounds; return the logarithm."""
    low, high = bounds
    return between(key, shape, (jnp.log(low), jnp.log(high)))


def normal(key: Array, shape: tuple[int, ...], variance: float = 1.0) -> Array:
    """Draw from N(0, variance)."""
    return jax.random.normal(key, shape) * variance**0.5


def complex_normal(rngs: nnx.Rngs, shape: tuple[int, ...], variance: float) -> tuple[nnx.Param, nnx.Param]:
    """Draw real and imaginary parts as parameters, each from N(0, variance)."""
    return nnx.Param(normal(rngs.params(), shape, variance)), nnx.Param(
        normal(rngs.params(), shape, variance)
    )


def _uniform(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw from (0, 1): 0 is excluded, so that logarithms are finite."""
    return jax.random.uniform(key, shape, minval=jnp.finfo(jnp.float32).tiny)
