"""S5 and S4D against their papers: recurrences, spectra and initialisation."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from tests.trainables.layers import reference
from tests.trainables.layers.cases import apart, build, exact, sequence
from trainables.errors import Refusal
from trainables.layers.state_space import SPECTRA, normal_hippo


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("discretisation", ["zoh", "bilinear"])
@pytest.mark.parametrize("name", ["s5", "s4d"])
def test_recurrence(name: str, discretisation: str) -> None:
    """Outputs and norms of all N states equal a float64 loop; backwards with the readout of its own."""
    layer = build(name, discretisation=discretisation, bidirectional=True)
    u, true = sequence(200), 150
    p, seen = exact(layer), np.asarray(u, np.float64)[:true]
    run = getattr(reference, name)
    forward, states = run(p, seen, discretisation)
    turned = {**p, "C_re": p["C_backward_re"], "C_im": p["C_backward_im"], "D": 0 * p["D"]}
    expected = forward + run(turned, seen[::-1], discretisation)[0][::-1]
    outputs, hidden = jax.jit(lambda u: layer.run(u, true))(u)
    assert apart(outputs[:true], expected) < 1e-5
    both = np.concatenate([states, states.conj()], axis=1)
    assert apart(np.linalg.norm(hidden[:true], axis=1), np.linalg.norm(both, axis=1)) < 1e-5


def test_normal_hippo() -> None:
    """The spectrum is that of HiPPO-LegS plus its rank-one term, which is normal."""
    size = 8
    n = np.arange(size)
    order = np.sqrt(2 * n + 1)
    hippo = -np.tril(np.outer(order, order), -1) - np.diag(n + 1)
    normal = hippo + np.outer(order, order) / 2
    eigenvalues, vectors = normal_hippo(size)
    np.testing.assert_allclose(normal @ vectors, vectors * eigenvalues, atol=1e-12)
    np.testing.assert_allclose(vectors.conj().T @ vectors, np.eye(4), atol=1e-12)
    assert np.all(eigenvalues.imag > 0)


def test_spectra() -> None:
    """-1/2 real parts; S4D-Inv and S4D-Lin as printed, one of each pair."""
    np.testing.assert_allclose(SPECTRA["lin"](3), [-0.5, -0.5 + 1j * np.pi, -0.5 + 2j * np.pi])
    printed = [-0.5 + 1j * 6 / np.pi * (6 / (2 * n + 1) - 1) for n in range(3)]
    np.testing.assert_allclose(SPECTRA["inv"](3), printed)
    np.testing.assert_allclose(SPECTRA["legs"](4), normal_hippo(8)[0])


@pytest.mark.slow
def test_s5_initialisation() -> None:
    """J copies of HiPPO-N, steps log-uniform, B and C turned into the basis of the eigenvectors."""
    layer = build("s5", d_model=50, d_state=800, blocks=4, dt_init=(0.001, 0.1))
    p = exact(layer)
    assert {name: value.shape for name, value in p.items()} == {
        "Lambda_re": (400,),
        "Lambda_im": (400,),
        "log_step": (400,),
        "B_re": (400, 50),
        "B_im": (400, 50),
        "C_re": (50, 400),
        "C_im": (50, 400),
        "D": (50,),
    }
    spectrum = normal_hippo(200)[0]
    np.testing.assert_allclose(p["Lambda_re"], -0.5)
    np.testing.assert_allclose(p["Lambda_im"], np.tile(spectrum.imag, 4), rtol=1e-6)
    assert np.log(0.001) <= p["log_step"].min() < np.log(0.0011)
    assert np.log(0.09) < p["log_step"].max() <= np.log(0.1)
    assert np.mean(p["log_step"]) == pytest.approx(np.log(0.01), abs=0.2)
    # A unitary basis keeps variances: 1/P of the real B, and both parts of each entry of C.
    assert np.mean(p["B_re"] ** 2 + p["B_im"] ** 2) == pytest.approx(1 / 800, rel=0.05)
    assert np.mean(p["C_re"] ** 2 + p["C_im"] ** 2) == pytest.approx(2 / (800 * 50), rel=0.05)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("kind", "power"),
    [("trunc_standard_normal", 2 / 200), ("complex_normal", 1.0), ("lecun_normal", 2 / 8000)],
)
def test_s5_readouts(kind: str, power: float) -> None:
    """The three distributions of C in S5's released settings, by their mean square."""
    p = exact(build("s5", d_model=40, d_state=200, blocks=1, readout_init=kind))
    assert np.mean(p["C_re"] ** 2 + p["C_im"] ** 2) == pytest.approx(power, rel=0.1)


@pytest.mark.slow
def test_s5_clips_eigenvalues() -> None:
    """Real parts that training made positive act as -1e-4."""
    layer = build("s5", clip_eigenvalues=True)
    layer.Lambda_re[...] = layer.Lambda_re[...] + 1.0
    p = exact(layer)
    expected = reference.s5(
        {**p, "Lambda_re": np.full(8, -1e-4)}, np.asarray(sequence(30), np.float64), "zoh"
    )
    assert apart(layer(sequence(30)), expected[0]) < 1e-5


@pytest.mark.slow
def test_s4d_initialisation() -> None:
    """The same spectrum in every channel, steps log-uniform, C complex normal of variance 1."""
    p = exact(build("s4d", d_model=300, d_state=20, spectrum="lin"))
    assert {name: value.shape for name, value in p.items()} == {
        "log_A_re": (300, 10),
        "A_im": (300, 10),
        "C_re": (300, 10),
        "C_im": (300, 10),
        "log_step": (300,),
        "D": (300,),
    }
    np.testing.assert_allclose(-np.exp(p["log_A_re"]), -0.5, rtol=1e-6)
    np.testing.assert_allclose(p["A_im"], np.broadcast_to(np.pi * np.arange(10), (300, 10)), rtol=1e-6)
    assert np.mean(p["log_step"]) == pytest.approx(np.log(0.01), abs=0.25)
    for part in ("C_re", "C_im"):
        assert np.var(p[part]) == pytest.approx(0.5, rel=0.1)


def test_refuses_odd_states() -> None:
    """States come in pairs, in every block."""
    with pytest.raises(Refusal, match="multiple of 2"):
        build("s5", d_state=12, blocks=4)
    with pytest.raises(Refusal, match="must be even"):
        build("s4d", d_state=7)
