"""RotRNN without one of its parts: the recurrence that is left, and what the paper says the part is for."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from tests.trainables.layers import reference
from tests.trainables.layers.cases import N, apart, exact, sequence
from tests.trainables.layers.rotations import built, expected_norms, trained

GAMMA = (0.3, 0.9)
ABLATIONS: tuple[dict[str, Any], ...] = (
    {"normalisation": "state"},
    {"normalisation": "learned"},
    {"normalisation": "none"},
    {"basis": "identity"},
    {"train_theta": False},
    {"train_gamma": False},
)

of_ablations = pytest.mark.parametrize(
    "options", ABLATIONS, ids=lambda options: "-".join(map(str, *options.items()))
)


def _decays(layer: Any) -> np.ndarray:
    return np.exp(-np.exp(exact(layer)["gamma_log"]))


@pytest.mark.slow
@of_ablations
def test_dense_recurrence(options: dict[str, Any]) -> None:
    """Outputs and norms equal a dense float64 recurrence to 1e-5, with heads of odd size."""
    layer = built(d_state=15, heads=5, gamma_init=(0.3, 0.99), **options)
    if "scale_log" in exact(layer):
        layer.scale_log[...] = sequence(*layer.scale_log.shape)  # Otherwise equal within a head.
    u = sequence(300)
    outputs, states = jax.jit(layer.run)(u)
    p = exact(layer)
    expected, hidden = reference.rotrnn(p, np.asarray(u, np.float64), options.get("normalisation", "input"))
    assert apart(outputs, expected) < 1e-5
    assert apart(np.linalg.norm(states, axis=1), np.linalg.norm(hidden, axis=1)) < 1e-5


@pytest.mark.slow_after(1)
@of_ablations
def test_other_parts_are_drawn_as_before(options: dict[str, Any]) -> None:
    """Layers of one seed differ in the ablated part alone."""
    whole, ablated = exact(built()), exact(built(**options))
    assert set(whole) - set(ablated) == ({"M"} if "basis" in options else set())
    assert set(ablated) - set(whole) == ({"scale_log"} if options == {"normalisation": "learned"} else set())
    for name in set(whole) & set(ablated):
        assert apart(ablated[name], whole[name]) < 1e-6


def test_without_a_normaliser_states_grow_with_their_memory() -> None:
    """E||x_t||^2 = Tr B^T B (1 - gamma^(2t)) / (1 - gamma^2); source: RotRNN, section 3.3 with xi = 1."""
    layer = built(gamma_init=GAMMA, normalisation="none")
    gamma, power = _decays(layer), np.sum(exact(layer)["B"] ** 2, axis=(1, 2))
    time = np.arange(1, 31)[:, None]
    expected = power * (1 - gamma ** (2 * time)) / (1 - gamma**2)
    np.testing.assert_allclose(expected_norms(layer, 30), expected, rtol=1e-5)


@pytest.mark.slow
def test_a_factor_of_the_state_keeps_its_norm_and_forgets() -> None:
    """From zero E||x_t||^2 = 1 - (alpha gamma)^(2t), which tends to 1; but far inputs fade by alpha too.

    Source: RotRNN, lemma 3 and equation 10.
    """
    naive, layer = built(gamma_init=GAMMA, normalisation="state"), built(gamma_init=GAMMA)
    gamma, power = _decays(naive), np.sum(exact(naive)["B"] ** 2, axis=(1, 2))
    alpha = (gamma**2 + power) ** -0.5
    assert alpha.max() < 0.8
    time = np.arange(1, 31)[:, None]
    norms = expected_norms(naive, 30)
    np.testing.assert_allclose(norms, 1 - (alpha * gamma) ** (2 * time), rtol=1e-5)
    # What a unit input of ten steps ago still adds to the state, compared with one of now.
    for normalised, decay in ((naive, alpha * gamma), (layer, gamma)):
        total = expected_norms(normalised, 11)
        rest = (total[10] - total[9]) / total[0]
        np.testing.assert_allclose(rest, decay**20, rtol=1e-2, atol=1e-7)


@pytest.mark.slow
def test_a_learned_factor_starts_at_the_papers_and_leaves_it() -> None:
    """Before training both layers are the same; training moves the norms of the learned one away from 1.

    Source: RotRNN, section 4.1 (of LRU's learned normaliser).
    """
    learned, layer = built(gamma_init=GAMMA, normalisation="learned"), built(gamma_init=GAMMA)
    u = sequence(100)
    assert apart(jax.jit(learned)(u), jax.jit(layer)(u)) < 1e-5
    steps = 200  # gamma^(2 * 200) has vanished, so that the norms are those of the limit.
    for normalised, moves in ((learned, True), (layer, False)):
        norms = expected_norms(trained(normalised, 5), steps)[-1]
        assert (np.abs(norms - 1).max() > 0.1) == moves, norms


@pytest.mark.slow
def test_the_identity_for_p_loses_no_function() -> None:
    """With P^T B for B and C P for C the layer without P is the same one: P can be absorbed."""
    layer, plain = built(), built(basis="identity")
    p = exact(layer)
    size = N // len(p["B"])
    for h, (weights, given) in enumerate(zip(p["M"], p["B"], strict=True)):
        basis = reference.scipy.linalg.expm(weights - weights.T)
        columns = slice(h * size, (h + 1) * size)
        plain.B[...] = plain.B[...].at[h].set(jnp.float32(basis.T @ given))
        plain.C[...] = plain.C[...].at[:, columns].set(jnp.float32(p["C"][:, columns] @ basis))
    u = sequence(200)
    assert apart(jax.jit(plain)(u), jax.jit(layer)(u)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("option", "name"), [("train_theta", "theta"), ("train_gamma", "gamma_log")])
def test_what_is_not_trained_stays_as_drawn(option: str, name: str) -> None:
    """It is no parameter, keeps its numbers in training, and everything else moves."""
    layer = built(**{option: False})
    assert set(nnx.to_pure_dict(nnx.state(layer, nnx.Param))) == set(exact(layer)) - {name}
    before = exact(layer)
    after = exact(trained(layer, 2))
    assert {key for key in before if np.array_equal(before[key], after[key])} == {name}
