"""The RNNs that the linear layers are compared with, against loops."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from tests.trainables.layers import reference
from tests.trainables.layers.cases import apart, build, exact, sequence
from trainables.layers.rnn import stable


@pytest.mark.parametrize("rho", ["linear", "tanh", "relu"])
def test_dense_rnn(rho: str) -> None:
    """Outputs and states equal a float64 loop over time."""
    layer, u = build(f"{rho}_rnn"), sequence(100)
    expected, expected_states = reference.dense(exact(layer), np.asarray(u, np.float64), rho)
    outputs, states = jax.jit(layer.run)(u)
    assert apart(outputs, expected) < 1e-5
    assert apart(states, expected_states) < 1e-5


def test_lstm() -> None:
    """Outputs and hidden states equal a float64 loop; the forget gate starts open."""
    layer, u = build("lstm"), sequence(100)
    p = exact(layer)
    expected, expected_states = reference.lstm(p, np.asarray(u, np.float64))
    outputs, states = jax.jit(layer.run)(u)
    assert apart(outputs, expected) < 1e-5
    assert apart(states, expected_states) < 1e-5
    np.testing.assert_array_equal(p["b"].reshape(4, 16)[:, 0], [0, 1, 0, 0])


@pytest.mark.slow
def test_glorot() -> None:
    """Matrices have Glorot's variance; a transition with a power that grows is shrunk, another is not."""
    p = exact(build("tanh_rnn", d_model=100, d_state=300))
    assert np.var(p["B"]) == pytest.approx(2 / 400, rel=0.05)
    assert np.var(p["C"]) == pytest.approx(2 / 400, rel=0.05)
    assert np.var(p["A"]) == pytest.approx(1 / 300, rel=0.1)
    plain = exact(build("relu_rnn", transition_init="glorot"))
    grows = np.linalg.norm(np.linalg.matrix_power(plain["A"], 1024)) > 1
    bounded = exact(build("relu_rnn"))
    assert grows == np.any(bounded["A"] != plain["A"])
    np.testing.assert_array_equal(bounded["B"], plain["B"])
    wild = 2 * jax.random.normal(jax.random.key(0), (6, 6))
    tamed = np.asarray(stable(wild), np.float64)
    assert max(abs(np.linalg.eigvals(tamed))) == pytest.approx(1, abs=0.01)
    assert np.linalg.norm(np.linalg.matrix_power(tamed, 1024)) == pytest.approx(1, abs=0.05)
    np.testing.assert_array_equal(stable(0.01 * wild), 0.01 * wild)
