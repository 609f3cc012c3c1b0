"""RotRNN against the paper: its recurrence, its initialisation and its claims."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from tests.trainables.layers import reference
from tests.trainables.layers.cases import apart, exact, sequence
from tests.trainables.layers.rotations import built, expected_norms, trained
from trainables.errors import Refusal
from trainables.layers.layer import Layer
from trainables.layers.lru import LRU
from trainables.layers.rotrnn import RotRNN

L = 1500


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("d_state", "heads", "gamma_init"),
    [(64, 8, (0.5, 0.999)), (25, 5, (0.5, 0.999)), (24, 4, (0.1, 0.9999)), (16, 8, (0.999, 0.9999))],
)
def test_dense_recurrence(d_state: int, heads: int, gamma_init: tuple[float, float]) -> None:
    """Outputs and norms equal a dense float64 recurrence to 1e-5 over 1,500 steps, odd heads too."""
    layer = built(d_state=d_state, heads=heads, gamma_init=gamma_init)
    u = sequence(L)
    outputs, states = jax.jit(layer.run)(u)
    expected, expected_states = reference.rotrnn(exact(layer), np.asarray(u, np.float64))
    assert apart(outputs, expected) < 1e-5
    assert states.shape == (L, d_state)
    norms = np.linalg.norm(expected_states, axis=1)
    assert apart(np.linalg.norm(states, axis=1), norms) < 1e-5


@pytest.mark.slow
def test_bidirectional() -> None:
    """The reverse pass is the dense recurrence on the reversed true steps, with its own readout."""
    layer = built(bidirectional=True)
    u, true = sequence(60), 40
    p, seen = exact(layer), np.asarray(u, np.float64)[:true]
    forward, _ = reference.rotrnn(p, seen)
    backward, _ = reference.rotrnn({**p, "C": p["C_backward"], "D": 0 * p["D"]}, seen[::-1])
    assert apart(jax.jit(layer)(u, true)[:true], forward + backward[::-1]) < 1e-5


def test_initialisation() -> None:
    """Every parameter has the distribution of appendix B.3, and the names and shapes of the paper."""
    layer = built(d_model=48, d_state=1200, heads=200, gamma_init=(0.1, 0.9), theta_init=(0.0, 2.0))
    p = exact(layer)
    assert {name: value.shape for name, value in p.items()} == {
        "theta": (200, 3),
        "gamma_log": (200,),
        "M": (200, 6, 6),
        "B": (200, 6, 48),
        "C": (48, 1200),
        "D": (48,),
    }
    gamma = np.exp(-np.exp(p["gamma_log"]))
    assert 0.1 <= gamma.min() < 0.25
    assert 0.87 < gamma.max() <= 0.9
    # The ring rule draws the square uniformly; were it gamma itself, the mean would be 0.30 and not 0.41.
    assert np.mean(gamma**2) == pytest.approx((0.1**2 + 0.9**2) / 2, abs=0.05)
    assert 0 <= p["theta"].min() < 0.02
    assert 1.98 < p["theta"].max() <= 2
    assert np.mean(p["theta"]) == pytest.approx(1, abs=0.08)
    for name, deviation in {"M": 1, "B": 48**-0.5, "C": 1200**-0.5}.items():
        assert np.std(p[name]) == pytest.approx(deviation, rel=0.03)
        assert np.mean(p[name]) == pytest.approx(0, abs=0.03 * deviation)
    assert 0.7 < np.std(p["D"]) < 1.3


@pytest.mark.slow
def test_initialisation_of_the_authors_program() -> None:
    """With u uniform, gamma = exp(-exp(a + u (b - a))) between its ends; B and C have variance 1 / (D + N).

    Everything else is drawn as the paper says, from the same numbers.
    """
    sizes = {"d_model": 48, "d_state": 1200, "heads": 200, "gamma_init": (0.1, 0.9)}
    p, paper = (
        exact(built(init="code", bidirectional=True, **sizes)),
        exact(built(bidirectional=True, **sizes)),
    )
    low, high = np.log(-np.log(0.9)), np.log(-np.log(0.1))
    u = (p["gamma_log"] - low) / (high - low)
    assert 0 <= u.min() < 0.02
    assert 0.98 < u.max() <= 1
    np.testing.assert_allclose(np.quantile(u, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.1)
    for name in ("B", "C", "C_backward"):
        assert np.std(p[name]) == pytest.approx(1248**-0.5, rel=0.03)
    for name in ("theta", "M", "D"):
        np.testing.assert_array_equal(p[name], paper[name])


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("steps", [0, 5])
def test_expected_norm(steps: int) -> None:
    """From zero E||x_t||^2 = 1 - gamma^(2t) in every head, and 1 stays 1; through training too.

    Source: RotRNN, lemma 3 with c = 1 and alpha = 1.
    """
    before = built(gamma_init=(0.3, 0.9))
    layer = trained(nnx.clone(before), steps)
    assert (steps == 0) == np.array_equal(before.gamma_log[...], layer.gamma_log[...])
    gamma = np.exp(-np.exp(exact(layer)["gamma_log"]))
    time = np.arange(1, 31)[:, None]
    from_zero = expected_norms(layer, 30)
    np.testing.assert_allclose(from_zero, 1 - gamma ** (2 * time), rtol=1e-5)
    # What a start of norm 1 still has after t steps is gamma^(2t), for rotations keep norms.
    np.testing.assert_allclose(from_zero + gamma ** (2 * time), np.ones((30, 4)), rtol=1e-5)


@pytest.mark.slow
def test_measured_norm() -> None:
    """The layer's own states have the norm of the lemma on white noise: sqrt(H) joined."""
    layer = built(heads=4, gamma_init=(0.5, 0.6))
    batch = jax.random.normal(jax.random.key(5), (400, 40, 4))
    states = jax.jit(jax.vmap(lambda u: layer.run(u)[1]))(batch)
    assert float(jnp.mean(jnp.sum(states[:, -1] ** 2, axis=-1))) == pytest.approx(4, rel=0.05)


@pytest.mark.slow
def test_is_an_lru_with_conjugate_pairs() -> None:
    """Heads of size 2 are an LRU whose eigenvalues are conjugate pairs, up to normalisation.

    Source: RotRNN, section 4.1.
    """
    rotrnn = built(d_state=12, heads=6, theta_init=(0.1, 3.0))
    p = exact(rotrnn)
    gamma = np.exp(-np.exp(p["gamma_log"]))
    weights, readout = [], []
    for h in range(6):
        basis = reference.scipy.linalg.expm(p["M"][h] - p["M"][h].T)
        xi = np.sqrt((1 - gamma[h] ** 2) / np.sum(p["B"][h] ** 2))
        weights.append(basis.T @ (xi * p["B"][h]))
        readout.append(p["C"][:, 2 * h : 2 * h + 2] @ basis)
    into, out_of = np.array(weights), np.array(readout)
    # One of each pair, z = x_1 + i x_2, and its conjugate; each gives half of x_1 and x_2.
    both = np.concatenate([into[:, 0] + 1j * into[:, 1], into[:, 0] - 1j * into[:, 1]])
    half = (out_of[:, :, 0] - 1j * out_of[:, :, 1]) / 2
    back = np.concatenate([half, half.conj()]).T
    lru = LRU(4, 12, rngs=nnx.Rngs(0), stable=False, normalise=False)
    lru.nu[...] = jnp.tile(jnp.float32(-np.log(gamma)), 2)
    lru.theta[...] = jnp.float32(np.concatenate([p["theta"][:, 0], -p["theta"][:, 0]]))
    lru.B_re[...], lru.B_im[...] = jnp.float32(both.real), jnp.float32(both.imag)
    lru.C_re[...], lru.C_im[...] = jnp.float32(back.real), jnp.float32(back.imag)
    lru.D[...] = rotrnn.D[...]
    u = sequence(200)
    assert apart(jax.jit(lru)(u), jax.jit(rotrnn)(u)) < 1e-5


@pytest.mark.slow
def test_bfloat16_activations() -> None:
    """Inputs and states in bfloat16 cost 1 % of the output; parameters and outputs stay float32."""
    narrow, wide = built(activations="bfloat16"), built()
    u = sequence(500)
    outputs, states = jax.jit(narrow.run)(u)
    assert outputs.dtype == jnp.float32
    assert states.dtype == jnp.bfloat16
    expected = jax.jit(wide)(u)
    difference = np.linalg.norm(outputs - expected) / np.linalg.norm(expected)
    assert 1e-4 < difference < 1e-2

    def graded(layer: Layer) -> dict[str, Any]:
        graph, arrays = nnx.split(layer)
        gradients = jax.jit(jax.grad(lambda arrays: jnp.sum(nnx.merge(graph, arrays)(u) ** 2)))(arrays)
        return nnx.to_pure_dict(gradients)

    rough, fine = graded(narrow), graded(wide)
    for name, value in rough.items():
        assert value.dtype == jnp.float32
        assert np.linalg.norm(value - fine[name]) / np.linalg.norm(fine[name]) < 0.03, name


@pytest.mark.parametrize(("d_state", "heads"), [(16, 5), (16, 16), (16, 0)])
def test_refuses_uneven_heads(d_state: int, heads: int) -> None:
    """Heads that do not divide the state, or hold one channel, are refused in one line."""
    with pytest.raises(Refusal, match="d_state must be a multiple of heads"):
        RotRNN(4, d_state, heads=heads, rngs=nnx.Rngs(0))
