"""LRU against the paper: its recurrence, its initialisation, its norm and its ablations."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from tests.trainables.layers import reference
from tests.trainables.layers.cases import apart, build, exact, sequence


@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrence(bidirectional: bool) -> None:
    """Outputs equal a float64 loop over time; backwards with the readout of its own."""
    layer = build("lru", bidirectional=bidirectional)
    u, true = sequence(200), 150
    p, seen = exact(layer), np.asarray(u, np.float64)[:true]
    expected, states = reference.lru(p, seen)
    if bidirectional:
        turned = {**p, "C_re": p["C_backward_re"], "C_im": p["C_backward_im"], "D": 0 * p["D"]}
        expected = expected + reference.lru(turned, seen[::-1])[0][::-1]
    outputs, hidden = jax.jit(lambda u: layer.run(u, true))(u)
    assert apart(outputs[:true], expected) < 1e-5
    assert apart(hidden[:true], np.concatenate([states.real, states.imag], axis=1)) < 1e-5


@pytest.mark.slow
def test_initialisation() -> None:
    """Eigenvalues are uniform on the ring by area, phases uniform; gamma is sqrt(1 - |lambda|^2)."""
    p = exact(build("lru", d_model=60, d_state=2000, r_init=(0.5, 0.9), theta_init=(0.0, 0.3)))
    modulus, phase = np.exp(-np.exp(p["nu_log"])), np.exp(p["theta_log"])
    assert 0.5 <= modulus.min() < 0.51
    assert 0.89 < modulus.max() <= 0.9
    assert np.mean(modulus**2) == pytest.approx((0.25 + 0.81) / 2, abs=0.01)
    assert 0 < phase.min() < 0.001
    assert 0.299 < phase.max() <= 0.3
    assert np.mean(phase) == pytest.approx(0.15, abs=0.005)
    np.testing.assert_allclose(np.exp(p["gamma_log"]), np.sqrt(1 - modulus**2), rtol=1e-5)
    for name, deviation in {"B": (2 * 60) ** -0.5, "C": 2000**-0.5}.items():
        for part in ("re", "im"):
            assert np.std(p[f"{name}_{part}"]) == pytest.approx(deviation, rel=0.02)
    assert {
        name: value.shape for name, value in p.items() if name not in {"B_re", "B_im", "C_re", "C_im"}
    } == {
        "nu_log": (2000,),
        "theta_log": (2000,),
        "gamma_log": (2000,),
        "D": (60,),
    }


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_computed_gamma_follows_the_eigenvalues(bidirectional: bool) -> None:
    """After a change of the moduli, outputs are those with gamma = sqrt(1 - |lambda|^2) in float64.

    Source: the RotRNN authors' program, `lru.py`.
    """
    layer = build("lru", bidirectional=bidirectional, gamma="computed", r_init=(0.9, 0.9999))
    assert "gamma_log" not in exact(layer)
    layer.nu_log[...] += jnp.linspace(-2.0, 1.0, 16)
    p, u = exact(layer), sequence(200)
    modulus = np.exp(-np.exp(p["nu_log"]))
    p["gamma_log"] = np.log(np.sqrt(1 - modulus**2))
    seen = np.asarray(u, np.float64)
    expected, _ = reference.lru(p, seen)
    if bidirectional:
        turned = {**p, "C_re": p["C_backward_re"], "C_im": p["C_backward_im"], "D": 0 * p["D"]}
        expected = expected + reference.lru(turned, seen[::-1])[0][::-1]
    assert apart(jax.jit(layer)(u), expected) < 1e-5
    learned = build("lru", bidirectional=bidirectional, r_init=(0.9, 0.9999))
    learned.nu_log[...] = layer.nu_log[...]
    assert apart(jax.jit(learned)(u), expected) > 0.1


def test_expected_norm() -> None:
    """E||x_t||^2 = sum_k b_k sum_i |lambda_k|^(2i) with i from 0 to t - 1; at first it tends to sum_k b_k.

    Source: LRU, section 3.4; RotRNN, equation 14, whose printed sum is off by one.
    """
    layer = build("lru", r_init=(0.3, 0.9))
    p = exact(layer)
    modulus = np.exp(-np.exp(p["nu_log"]))
    raw = np.sum(p["B_re"] ** 2 + p["B_im"] ** 2, axis=1)
    impulses = jnp.zeros((4, 40, 4)).at[:, 0].set(jnp.eye(4))
    states = np.asarray(jax.jit(jax.vmap(lambda u: layer.run(u)[1]))(impulses), np.float64)
    total = np.cumsum(np.sum(states**2, axis=(0, 2)))
    powers = modulus ** (2 * np.arange(40)[:, None])
    rows = np.exp(2 * p["gamma_log"]) * raw
    np.testing.assert_allclose(total, np.cumsum(powers, axis=0) @ rows, rtol=1e-5)
    assert total[-1] == pytest.approx(raw.sum(), rel=1e-3)


@pytest.mark.slow
def test_ablations() -> None:
    """Without stability, without gamma and dense: other parameters, the recurrences of tables 1-3 and 5."""
    u = sequence(50)
    exact_u = np.asarray(u, np.float64)
    stable = exact(build("lru"))
    free = build("lru", stable=False)
    p = exact(free)
    assert {"nu", "theta"} <= set(p)
    assert not {"nu_log", "theta_log"} & set(p)
    logs = {"nu_log": np.log(p["nu"]), "theta_log": np.log(p["theta"])}
    assert apart(free(u), reference.lru({**p, **logs}, exact_u)[0]) < 1e-5

    plain = build("lru", normalise=False)
    p = exact(plain)
    assert set(stable) - set(p) == {"gamma_log"}
    assert apart(plain(u), reference.lru({**p, "gamma_log": np.zeros(16)}, exact_u)[0]) < 1e-5

    dense = build("lru", dense=True)
    p = exact(dense)
    assert {name: value.shape for name, value in p.items()} == {
        "A": (16, 16),
        "B_re": (16, 4),
        "C_re": (4, 16),
        "D": (4,),
    }
    renamed = {**p, "B": p["B_re"], "C": p["C_re"]}
    assert apart(dense(u), reference.dense(renamed, exact_u, "linear")[0]) < 1e-5


def test_cartesian_eigenvalues() -> None:
    """Real and imaginary parts of the same draws: the same layer at first, in other parameters (table 2)."""
    u = sequence(50)
    cartesian, exponential = build("lru", cartesian=True, stable=False), build("lru", stable=False)
    p = exact(cartesian)
    assert set(exact(exponential)) - set(p) == {"nu", "theta"}
    assert set(p) - set(exact(exponential)) == {"Lambda_re", "Lambda_im"}
    eigenvalues = p["Lambda_re"] + 1j * p["Lambda_im"]
    phases = np.angle(eigenvalues) % (2 * np.pi)
    polar = {"nu_log": np.log(-np.log(np.abs(eigenvalues))), "theta_log": np.log(phases)}
    assert apart(cartesian(u), reference.lru({**p, **polar}, np.asarray(u, np.float64))[0]) < 1e-5
    assert apart(cartesian(u), exponential(u)) < 1e-5


@pytest.mark.slow
def test_a_disk_has_the_eigenvalues_of_a_glorot_matrix() -> None:
    """Uniform on the unit disk by area, as those of a large Glorot matrix; source: LRU, theorem 1."""
    p = exact(build("lru", d_state=2000, cartesian=True, stable=False, r_init=(0, 1), normalise=False))
    drawn = p["Lambda_re"] + 1j * p["Lambda_im"]
    glorot = np.linalg.eigvals(exact(build("lru", d_state=500, dense=True))["A"])
    assert np.abs(drawn).max() <= 1
    for radius in (0.3, 0.6, 0.9):
        assert np.mean(np.abs(drawn) < radius) == pytest.approx(radius**2, abs=0.03)
        assert np.mean(np.abs(glorot) < radius) == pytest.approx(radius**2, abs=0.03)
    for part in (drawn.real, drawn.imag, glorot.real, glorot.imag):
        assert np.mean(part) == pytest.approx(0, abs=0.03)
