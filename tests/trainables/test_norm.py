"""Batch normalisation is Flax's, over true steps only."""

from __future__ import annotations

import numpy as np
from flax import nnx
from jax import numpy as jnp

from trainables.norm import EPSILON, MOMENTUM, BatchNorm

RANDOM = np.random.default_rng(0)
MASK = jnp.arange(5)[None, :, None] < jnp.array([3, 5])[:, None, None]


def _input() -> jnp.ndarray:
    return jnp.where(MASK, jnp.asarray(RANDOM.normal(2.0, 3.0, (2, 5, 4)), jnp.float32), 0)


def test_equals_flax_over_true_steps() -> None:
    """Outputs, running statistics and evaluation are those of `nnx.BatchNorm(mask=)`, padding then zeroed."""
    ours = BatchNorm(4)
    flax = nnx.BatchNorm(4, momentum=MOMENTUM, epsilon=EPSILON, rngs=nnx.Rngs(0))
    for norm in (ours, flax):
        norm.scale[...] = jnp.arange(1.0, 5.0)
        norm.bias[...] = jnp.arange(4.0)
    for _ in range(3):
        x = _input()
        expected = jnp.where(MASK, flax(x, mask=MASK), 0)
        np.testing.assert_allclose(
            ours(x, MASK, jnp.float32(8), training=True), expected, rtol=1e-5, atol=1e-6
        )
    np.testing.assert_allclose(ours.mean[...], flax.mean[...], rtol=1e-6)
    np.testing.assert_allclose(ours.var[...], flax.var[...], rtol=1e-5)
    x = _input()
    expected = jnp.where(MASK, flax(x, use_running_average=True), 0)
    np.testing.assert_allclose(ours(x, MASK, jnp.float32(8), training=False), expected, rtol=1e-5, atol=1e-6)


def test_evaluation_leaves_the_statistics() -> None:
    """Only training moves the running statistics."""
    norm = BatchNorm(4)
    norm(_input(), MASK, jnp.float32(8), training=False)
    np.testing.assert_array_equal(norm.mean[...], jnp.zeros(4))
    np.testing.assert_array_equal(norm.var[...], jnp.ones(4))
