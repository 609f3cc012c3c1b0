"""Reachable systems: spectra, companion form, and the propositions of LDStack."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from tests.trainables.layers import reference
from tests.trainables.layers.cases import apart
from tests.trainables.layers.companion import (
    companion_states,
    evaluate,
    interpolate,
    modal_states,
    transposed_input,
)
from tests.trainables.layers.stack import stacked_states
from trainables.layers.lds import PARAMETERS, initial_parameters, whole_spectrum

# Moduli 0.7 to 1, distinct angles, two of them real.
UPPER = np.array([0.9 * np.exp(0.5j), 1.0 * np.exp(1.4j), 0.8 * np.exp(2.6j)])
EIGENVALUES = np.concatenate([UPPER, UPPER.conj(), [0.7, -0.95]])


def _spectrum(kind: str, parameters: tuple[jax.Array, ...]) -> np.ndarray:
    planes = np.asarray(whole_spectrum(kind, *parameters), np.float64)
    return planes[0] + 1j * planes[1]


@pytest.mark.parametrize("kind", PARAMETERS)
def test_spectra_are_real_systems(kind: str) -> None:
    """Every system's polynomial is real; eigenvalues are distinct and in the unit disk, near its edge."""
    parameters = jax.jit(initial_parameters, static_argnums=(0, 2, 3))(kind, jax.random.key(0), 8, 3)
    assert [value.shape for value in parameters] == [(24,)] * len(PARAMETERS[kind])
    first, second = np.split(_spectrum(kind, parameters), 2)
    for system in range(3):
        rows = slice(8 * system, 8 * system + 8)
        actual = np.concatenate([first[rows], second[rows]])
        assert abs(np.poly(actual).imag).max() < 1e-5
        assert abs(actual).max() <= 1 + 1e-6
        assert np.median(abs(actual)) > 0.8
        gaps = abs(actual[:, None] - actual) + np.eye(16)
        assert gaps.min() > 1e-4
    if kind == "unit":
        np.testing.assert_allclose(abs(first), 1, rtol=1e-6)
        assert np.ptp(parameters[0]) > 2 * np.pi


def test_standard_roots_are_of_random_polynomials() -> None:
    """Coefficients of the polynomials have variance 1/n where no root had to be reflected."""
    alpha, beta = initial_parameters("standard", jax.random.key(1), 4, 60)
    roots = (np.asarray(alpha, np.float64) + 1j * np.asarray(beta, np.float64)).reshape(60, 4)
    assert np.all(roots.imag > 0)
    coefficients = np.array([np.poly(np.r_[row, row.conj()]).real[1:] for row in roots])
    assert np.std(coefficients[:, 0]) == pytest.approx(8**-0.5, rel=0.6)


def test_hinge_lets_eigenvalues_meet() -> None:
    """A pair of complex eigenvalues becomes two real ones as omega changes its sign."""
    omega = jnp.array([-0.5, 0.5])
    pair, real = np.split(_spectrum("hinge", (jnp.array([0.2, 0.2]), omega))[[0, 2, 1, 3]], 2)
    np.testing.assert_allclose(pair, [0.2 + 0.5j, 0.2 - 0.5j], rtol=1e-6)
    np.testing.assert_allclose(real, [0.2, 0.7], rtol=1e-6)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("algorithm", ["sequential", "associative", "chunked"])
def test_companion_form(algorithm: str) -> None:
    """The states of the companion form, through its eigenvalues alone, equal its dense recurrence."""
    inputs = np.random.default_rng(0).standard_normal(60)
    dense = reference.run(reference.companion(EIGENVALUES), np.eye(8)[:, :1], inputs[:, None])
    solve = jax.jit(companion_states, static_argnames="algorithm")
    actual = solve(jnp.asarray(EIGENVALUES, jnp.complex64), jnp.float32(inputs), algorithm=algorithm)
    assert apart(actual, dense) < 2e-5


def test_vandermonde() -> None:
    """Evaluation and interpolation are each other's inverse, and V is the basis of left eigenvectors."""
    points = jnp.asarray(EIGENVALUES, jnp.complex64)
    coefficients = jnp.asarray(np.random.default_rng(1).standard_normal((5, 8)), jnp.complex64)
    values = jax.jit(evaluate)(points, coefficients)
    assert apart(values, np.asarray(coefficients) @ np.vander(EIGENVALUES, increasing=True).T) < 1e-5
    assert apart(jax.jit(interpolate)(points, values), coefficients) < 1e-4
    vandermonde = np.vander(EIGENVALUES, increasing=True)
    companion = reference.companion(EIGENVALUES)
    np.testing.assert_allclose(vandermonde @ companion, EIGENVALUES[:, None] * vandermonde, atol=1e-10)


@pytest.mark.slow
def test_modal_states() -> None:
    """V s of the companion form is the diagonal recurrence driven by ones (equation 3)."""
    inputs = np.random.default_rng(2).standard_normal(40)
    dense = reference.run(reference.companion(EIGENVALUES), np.eye(8)[:, :1], inputs[:, None])
    modal = modal_states(jnp.asarray(EIGENVALUES, jnp.complex64), jnp.float32(inputs))
    assert apart(modal, dense @ np.vander(EIGENVALUES, increasing=True).T) < 1e-5


def test_transposed_form() -> None:
    """Lemmas 2 and 3: U diagonalises the transposed form, and B' is U^-1 times its input vector."""
    companion = reference.companion(EIGENVALUES).T
    basis = 1 / EIGENVALUES ** np.arange(7, -1, -1)[:, None]
    np.testing.assert_allclose(companion @ basis, basis * EIGENVALUES, atol=1e-9)
    expected = np.linalg.solve(basis, np.eye(8)[:, -1])
    assert apart(transposed_input(jnp.asarray(EIGENVALUES, jnp.complex64)), expected) < 1e-4


def _projected(repetitions: int) -> tuple[np.ndarray, float, float]:
    """Return squared errors of single projections of a system at t = 20, its bound for r = 1, and y."""
    draw = np.random.default_rng(3)
    basis = draw.standard_normal((8, 8)) + 0j
    for k in range(3):
        basis[:, k + 3] = basis[:, k].conj()
    weights, readout = draw.standard_normal((8, 3)), draw.standard_normal(8)
    basis[:, :3] += 1j * draw.standard_normal((8, 3))
    basis[:, 3:6] = basis[:, :3].conj()
    transition = (basis @ np.diag(EIGENVALUES) @ np.linalg.inv(basis)).real
    u = draw.standard_normal((21, 3))
    whole = reference.run(transition, weights, u)[-1] @ readout
    z = sum(np.outer(u[20 - k], readout @ np.linalg.matrix_power(transition, k) @ weights) for k in range(21))
    errors = []
    modal_weights = np.linalg.inv(basis) @ weights
    gaussians = draw.standard_normal((repetitions, 3))
    states = jax.vmap(lambda scalars: modal_states(jnp.asarray(EIGENVALUES, jnp.complex64), scalars)[-1])(
        jnp.float32(gaussians @ u.T)
    )
    outputs = ((np.asarray(states) * (gaussians @ modal_weights.T)) @ (basis.T @ readout)).real
    errors = outputs - whole
    return errors, 2 * float(np.sum(z**2)), float(whole)


@pytest.mark.slow
def test_random_projections() -> None:
    """The squared error is at most the printed bound, exact for the symmetric part, and falls as 1/r.

    Source: LDStack, propositions 3 and 6.
    """
    errors, bound, _ = _projected(40_000)
    single = float(np.mean(errors**2))
    assert abs(np.mean(errors)) < 0.03 * single**0.5
    assert 0.2 * bound < single < bound
    for r in (4, 16):
        averaged = np.mean(errors.reshape(-1, r), axis=1)
        assert r * float(np.mean(averaged**2)) == pytest.approx(single, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sequential", "associative"])
def test_stack_is_correct_from_the_start(algorithm: str) -> None:
    """Layer 0 is the plain linear system; layer i is the RNN for the first i steps, and no further.

    Source: LDStack, proposition 5.
    """
    draw = np.random.default_rng(4)
    transition, weights = draw.standard_normal((6, 6)) / 6**0.5, draw.standard_normal((6, 3))
    u = draw.standard_normal((12, 3))
    rnn = reference.rnn_states(transition, weights, u)
    arrays = (jnp.float32(transition), jnp.float32(weights))
    stack = jax.jit(lambda a, b, u: stacked_states(a, b, jnp.tanh, u, 13, algorithm=algorithm))
    layers = stack(*arrays, jnp.float32(u))
    assert apart(layers[0], reference.run(transition, weights, u)) < 1e-5
    for i in range(1, 12):
        assert apart(layers[i][:i], rnn[:i]) < 1e-5
        assert apart(layers[i][i], rnn[i]) > 1e-4
    assert apart(layers[12], rnn) < 1e-5
