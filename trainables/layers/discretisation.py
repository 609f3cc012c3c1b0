"""From continuous time to steps: dx/dt = A x + B u, A diagonal, held for a step of length dt.

Source: S5, section 2.1 and appendix A.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence import planar, polar, times


def _hold(eigenvalues: Array, step: Array) -> tuple[Array, Array]:
    """Return exp(A dt) and (exp(A dt) - 1) / A, the latter without the difference's loss of digits."""
    re, im = eigenvalues[..., 0, :] * step, eigenvalues[..., 1, :] * step
    half = jnp.sin(im / 2)
    less_one = planar(jnp.expm1(re) * jnp.cos(im) - 2 * half * half, jnp.exp(re) * jnp.sin(im))
    return polar(jnp.exp(re), im), times(less_one, _inverse(eigenvalues))


def _bilinear(eigenvalues: Array, step: Array) -> tuple[Array, Array]:
    """Return (1 + A dt/2) / (1 - A dt/2) and dt / (1 - A dt/2)."""
    half = eigenvalues * (step / 2)[..., None, :]
    one = planar(jnp.ones_like(step), jnp.zeros_like(step))
    inverse = _inverse(one - half)
    return times(inverse, one + half), inverse * step[..., None, :]


def _inverse(a: Array) -> Array:
    re, im = a[..., 0, :], a[..., 1, :]
    squared = re * re + im * im
    return planar(re / squared, -im / squared)


METHODS: Mapping[str, Callable[[Array, Array], tuple[Array, Array]]] = MappingProxyType(
    {"zoh": _hold, "bilinear": _bilinear}
)
"""By name: (eigenvalues, planes (..., 2, N); dt (..., N)) -> decay and factor of B, planes."""
