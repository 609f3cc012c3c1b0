"""Spectra that state-space models start from, computed on the host in float64.

Source: S5, appendix B.1 (the normal part of HiPPO-LegS); S4D, section 4 (its three spectra).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.complex128]


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


def _inverse(count: int) -> Matrix:
    n = np.arange(count)
    size = 2 * count
    return np.asarray(-0.5 + 1j * size / np.pi * (size / (2 * n + 1) - 1), np.complex128)


def _linear(count: int) -> Matrix:
    return np.asarray(-0.5 + 1j * np.pi * np.arange(count), np.complex128)


SPECTRA: Mapping[str, Callable[[int], Matrix]] = MappingProxyType(
    {"legs": _legs, "inv": _inverse, "lin": _linear}
)
"""By name: N/2 -> the N/2 eigenvalues, one of each conjugate pair."""
