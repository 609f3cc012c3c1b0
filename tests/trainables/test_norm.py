"""Batch normalisation is Flax's, over true steps only."""

from __future__ import annotations

import jax
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


def test_gradients_are_those_of_flax() -> None:
    """The reverse pass that is written by hand is the one that JAX derives of `nnx.BatchNorm(mask=)`."""
    x, weights = _input(), jnp.asarray(RANDOM.normal(size=(2, 5, 4)), jnp.float32)

    def ours(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
        norm = BatchNorm(4)
        norm.scale[...], norm.bias[...] = scale, bias
        return jnp.sum(weights * norm(jnp.where(MASK, x, 0), MASK, jnp.float32(8), training=True) ** 3)

    def theirs(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
        norm = nnx.BatchNorm(4, momentum=MOMENTUM, epsilon=EPSILON, rngs=nnx.Rngs(0))
        norm.scale[...], norm.bias[...] = scale, bias
        return jnp.sum(weights * jnp.where(MASK, norm(x, mask=MASK), 0) ** 3)

    at = (x, jnp.arange(1.0, 5.0), jnp.arange(4.0))
    for mine, expected in zip(*(jax.grad(each, (0, 1, 2))(*at) for each in (ours, theirs)), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=2e-4, atol=1e-4 * float(jnp.abs(expected).max()))


def test_evaluation_leaves_the_statistics() -> None:
    """Only training moves the running statistics."""
    norm = BatchNorm(4)
    norm(_input(), MASK, jnp.float32(8), training=False)
    np.testing.assert_array_equal(norm.mean[...], jnp.zeros(4))
    np.testing.assert_array_equal(norm.var[...], jnp.ones(4))
