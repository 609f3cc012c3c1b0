"""What docs/layers.md says that layers can do, with weights set by hand: no training decides."""

from __future__ import annotations

from itertools import permutations

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from tests.trainables.layers.cases import build
from trainables.layers.recurrence.delta_rule import delta_rule
from trainables.layers.recurrence.wy_form import Steps

SWAPS = ((0, 1), (1, 2), (0, 2))


@pytest.mark.slow
def test_rot_gated_counts_modulo_any_number() -> None:
    """Digits turn the state by their share of a circle; its angle is the sum modulo 3 after 300 of them."""
    layer = build("rot_gated", d_model=2, d_state=2, heads=1)
    for name, value in {
        "theta": [[0.0]],
        "W_theta": [[[2 * np.pi / 3, 0.0]]],
        "gamma_log": [-9.0],
        "W_gamma": [[0.0, 0.0]],
        "b_gamma": [0.0],
        "M": np.zeros((1, 2, 2)),
        "B": [[[0.0, 1.0], [0.0, 0.0]]],
        "C": np.eye(2),
        "D": [0.0, 0.0],
    }.items():
        parameter = getattr(layer, name)
        assert parameter.shape == np.shape(value), name
        parameter[...] = jnp.asarray(value, jnp.float32)
    digits = np.random.default_rng(0).integers(3, size=301)
    digits[0] = 0
    u = np.zeros((301, 2), np.float32)
    u[:, 0], u[0, 1] = digits, 1
    outputs = np.asarray(jax.jit(layer)(jnp.asarray(u)))
    angles = np.arctan2(outputs[:, 1], outputs[:, 0])
    np.testing.assert_allclose(np.cos(angles - 2 * np.pi / 3 * np.cumsum(digits)), 1, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("moves", [True, False])
def test_pd_ssm_multiplies_permutations(moves: bool) -> None:
    """Six states are the elements of S3, and each swap moves them as it multiplies; D alone cannot."""
    group = list(permutations(range(3)))
    swaps = [tuple(order[k] for k in range(3)) for order in ((1, 0, 2), (0, 2, 1), (2, 1, 0))]
    after = [[group.index(tuple(g[i] for i in swap)) for g in group] for swap in swaps]
    layer = build("pd_ssm", d_model=6, d_state=6, dictionary=3)
    for name, value in {
        "S": 50 * np.eye(3, 6),
        "M": np.array([np.eye(6)[row if moves else range(6)].T for row in after]),
        **{f"W_{kind}2": np.zeros((6, 12)) for kind in "rp"},
        "b_r2": np.full(6, 20.0),
        "b_p2": np.full(6, -20.0),
        **{name: np.zeros((6, 6)) for name in ("B_re", "B_im", "C_im")},
        "C_re": np.eye(6),
        "D": np.zeros(6),
    }.items():
        parameter = getattr(layer, name)
        assert parameter.shape == np.shape(value), name
        parameter[...] = jnp.asarray(value, jnp.float32)
    word = np.random.default_rng(0).integers(3, size=200)
    outputs = np.asarray(jax.jit(layer)(jnp.asarray(np.eye(6)[word], jnp.float32)))
    element, products = 0, []
    for swap in word:
        element = after[swap][element]
        products.append(element)
    np.testing.assert_allclose(outputs.max(axis=1), 1, atol=1e-3)
    assert np.array_equal(outputs.argmax(axis=1), products) == moves


def _followed(word: list[int], size: float) -> np.ndarray:
    """Return the matrix of a delta rule that starts at 1, after steps along the differences of a word."""
    keys = np.zeros((len(word), 3))
    for step, swap in enumerate(word):
        keys[step, list(SWAPS[swap])] = 1 / np.sqrt(2), -1 / np.sqrt(2)
    count = len(word)
    zeros, sizes = jnp.zeros((count, 3)), jnp.full(count, size)
    steps = Steps(zeros, jnp.asarray(keys, jnp.float32), zeros, sizes, jnp.zeros(count))
    return np.asarray(delta_rule(steps, jnp.eye(3), "sequential")[1])


@pytest.mark.slow
def test_a_delta_rule_with_negative_eigenvalues_swaps_two_of_three_things() -> None:
    """Steps of size 2 are reflections, which multiply as the swaps of S3 do; two of them are a cycle."""
    word = np.random.default_rng(0).integers(3, size=100).tolist()
    expected = np.eye(3)
    for swap in word:
        order = np.arange(3)
        order[list(SWAPS[swap])] = SWAPS[swap][::-1]
        expected = expected[order]
    np.testing.assert_allclose(_followed(word, 2.0), expected, atol=1e-4)
    cycle = _followed([0, 1], 2.0)
    np.testing.assert_allclose(np.linalg.matrix_power(cycle, 3), np.eye(3), atol=1e-5)
    assert not np.allclose(cycle, _followed([1, 0], 2.0))


def test_a_delta_rule_with_positive_eigenvalues_forgets_by_each_swap() -> None:
    """A step of size 1 is a projection, which loses what two things differ by; in the end all are equal."""
    once = _followed([0], 1.0)
    np.testing.assert_allclose(once[0], once[1], atol=1e-6)
    word = np.random.default_rng(0).integers(3, size=100).tolist()
    np.testing.assert_allclose(_followed(word, 1.0), np.full((3, 3), 1 / 3), atol=1e-5)
