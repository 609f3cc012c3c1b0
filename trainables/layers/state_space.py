"""Discretisations of state-space models dx/dt = A x + B u, and initial spectra of A.

Source: S5, section 2.1 and appendix A (discretisation), appendix B.1 (the normal part of HiPPO-LegS); S4D,
section 4 (its three spectra).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

import numpy as np
from jax import Array
from jax import numpy as jnp
from numpy.typing import NDArray

from trainables.layers.recurrence import planar, polar, times

Matrix = NDArray[np.complex128]


def _hold(eigenvalues: Array, step: Array) -> tuple[Array, Array]:
    """Return exp(A dt) and (exp(A dt) - 1) / A, the latter without cancellation."""
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


DISCRETISATIONS: Mapping[str, Callable[[Array, Array], tuple[Array, Array]]] = MappingProxyType(
    {"zoh": _hold, "bilinear": _bilinear}
)
"""Functions by name: (eigenvalues, planes (..., 2, N); dt (..., N)) -> decay and factor of B, planes."""


@cache
def normal_hippo(size: int) -> tuple[Matrix, Matrix]:
    """Diagonalise the normal part of HiPPO-LegS of an even size n.

    Returns:
        The n/2 eigenvalues with positive imaginary part, rising, and their eigenvectors (n, n/2). Those of
        the other half are the conjugates.
    """
    order = np.sqrt(2 * np.arange(size) + 1)
    lower = np.tril(np.outer(order, order), -1)
    # HiPPO plus its rank-one term: -1/2 on the diagonal, and a skew-symmetric rest.
    skew = (lower.T - lower) / 2
    imaginary, vectors = np.linalg.eigh(-1j * skew)
    half = size // 2
    return -0.5 + 1j * imaginary[half:], vectors[:, half:]


def _legs(count: int) -> Matrix:
    return normal_hippo(2 * count)[0]


def _inv(count: int) -> Matrix:
    n = np.arange(count)
    size = 2 * count
    return np.asarray(-0.5 + 1j * size / np.pi * (size / (2 * n + 1) - 1), np.complex128)


def _linear(count: int) -> Matrix:
    return np.asarray(-0.5 + 1j * np.pi * np.arange(count), np.complex128)


SPECTRA: Mapping[str, Callable[[int], Matrix]] = MappingProxyType(
    {"legs": _legs, "inv": _inv, "lin": _linear}
)
"""Functions by name: N/2 -> N/2 eigenvalues, one of each conjugate pair."""
