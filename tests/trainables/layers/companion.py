"""The companion form of a reachable system with one input, and its diagonalisation.

    s_t = A s_{t-1} + e_1 x_t,   A the Frobenius companion matrix of the eigenvalues
    V s_t = lambda * V s_{t-1} + 1 x_t,   V_ij = lambda_i^(j-1)

The eigenvalues are the whole system: no matrix is stored and none is inverted.

Source: LDStack, sections 2.1, 2.2 and 3.
"""

from __future__ import annotations

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence import planar, recurrence


def companion_states(eigenvalues: Array, inputs: Array, *, algorithm: str = "auto") -> Array:
    """Return the states of the companion form, (L, n), for scalar inputs (L,), from zero.

    State t is the one after input t is in.

    Args:
        eigenvalues: (n,) complex, distinct and not zero, in conjugate pairs if not real.
        inputs: (L,) real.
        algorithm: algorithm of the recurrence, or "auto" for the fastest one.
    """
    modal = modal_states(eigenvalues, inputs, algorithm=algorithm)
    return interpolate(eigenvalues, modal).real


def modal_states(eigenvalues: Array, inputs: Array, *, algorithm: str = "auto") -> Array:
    """Return the states in the basis of the eigenvectors, (L, n) complex; arguments as above.

    Source: LDStack, equation 3 and figure 1, step 2.
    """
    decay = planar(eigenvalues.real, eigenvalues.imag)
    driven = jnp.broadcast_to(inputs[:, None], (len(inputs), len(eigenvalues)))
    states = recurrence(decay, planar(driven, jnp.zeros_like(driven)), algorithm=algorithm)
    return jax.lax.complex(states[:, 0], states[:, 1])


def interpolate(points: Array, values: Array) -> Array:
    """Return V^-1 y: the coefficients (..., n), rising, of the polynomials with values (..., n) at n points.

    Source: Bjorck and Pereyra, Solution of Vandermonde systems of equations, 1970.
    """
    count = len(points)
    for k in range(count - 1):
        gaps = points[k + 1 :] - points[: count - k - 1]
        values = values.at[..., k + 1 :].set((values[..., k + 1 :] - values[..., k:-1]) / gaps)
    for k in range(count - 2, -1, -1):
        values = values.at[..., k:-1].add(-points[k] * values[..., k + 1 :])
    return values


def evaluate(points: Array, coefficients: Array) -> Array:
    """Return V c: the values (..., n) of polynomials with rising coefficients (..., n), by Horner's rule."""
    total = jnp.zeros_like(coefficients[..., :1])
    for k in range(len(points) - 1, -1, -1):
        total = total * points + coefficients[..., k : k + 1]
    return total


def transposed_input(eigenvalues: Array) -> Array:
    """Return B' (n,) of the transposed form: lambda_i^(n-1) / prod_{j != i} (lambda_i - lambda_j).

    Source: LDStack, lemma 3.
    """
    gaps = eigenvalues[:, None] - eigenvalues[None] + jnp.eye(len(eigenvalues))
    return eigenvalues ** (len(eigenvalues) - 1) / jnp.prod(gaps, axis=1)
