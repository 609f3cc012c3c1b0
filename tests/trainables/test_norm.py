"""Normalisations against those of Flax."""

from __future__ import annotations

from typing import get_args

import jax
import numpy as np
from flax import nnx
from jax import numpy as jnp

from trainables.norm import EPSILON, LAYER_EPSILON, MOMENTUM, NORMS, BatchNorm, LayerNorm
from trainables.settings import Norm

MASK = jnp.arange(5)[None, :, None] < jnp.array([3, 5])[:, None, None]


def _input(seed: int = 0) -> jnp.ndarray:
    """Return sequences of a seed: what a test draws must not depend on the tests that ran before it."""
    drawn = np.random.default_rng(seed).normal(2.0, 3.0, (2, 5, 4))
    return jnp.where(MASK, jnp.asarray(drawn, jnp.float32), 0)


def test_equals_flax_over_true_steps() -> None:
    """Outputs, running statistics and evaluation are those of `nnx.BatchNorm(mask=)`, padding then zeroed."""
    own = BatchNorm(4)
    flax = nnx.BatchNorm(4, momentum=MOMENTUM, epsilon=EPSILON, rngs=nnx.Rngs(0))
    for norm in (own, flax):
        norm.scale[...] = jnp.arange(1.0, 5.0)
        norm.bias[...] = jnp.arange(4.0)
    for seed in range(3):
        x = _input(seed)
        expected = jnp.where(MASK, flax(x, mask=MASK), 0)
        np.testing.assert_allclose(
            own(x, MASK, jnp.float32(8), training=True), expected, rtol=1e-5, atol=1e-6
        )
    np.testing.assert_allclose(own.mean[...], flax.mean[...], rtol=1e-6)
    np.testing.assert_allclose(own.var[...], flax.var[...], rtol=1e-5)
    x = _input(3)
    expected = jnp.where(MASK, flax(x, use_running_average=True), 0)
    np.testing.assert_allclose(own(x, MASK, jnp.float32(8), training=False), expected, rtol=1e-5, atol=1e-6)


def test_gradients_are_those_of_flax() -> None:
    """The hand-written reverse pass equals the one that JAX derives of `nnx.BatchNorm(mask=)`."""
    x, weights = _input(), jnp.asarray(np.random.default_rng(1).normal(size=(2, 5, 4)), jnp.float32)

    def own(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
        norm = BatchNorm(4)
        norm.scale[...], norm.bias[...] = scale, bias
        return jnp.sum(weights * norm(jnp.where(MASK, x, 0), MASK, jnp.float32(8), training=True) ** 3)

    def flax(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
        norm = nnx.BatchNorm(4, momentum=MOMENTUM, epsilon=EPSILON, rngs=nnx.Rngs(0))
        norm.scale[...], norm.bias[...] = scale, bias
        return jnp.sum(weights * jnp.where(MASK, norm(x, mask=MASK), 0) ** 3)

    at = (x, jnp.arange(1.0, 5.0), jnp.arange(4.0))
    gradients = [jax.jit(jax.grad(loss, (0, 1, 2)))(*at) for loss in (own, flax)]
    for actual, expected in zip(*gradients, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=1e-4 * float(jnp.abs(expected).max()))


def test_evaluation_leaves_the_statistics() -> None:
    """Only training moves the running statistics."""
    norm = BatchNorm(4)
    norm(_input(), MASK, jnp.float32(8), training=False)
    np.testing.assert_array_equal(norm.mean[...], jnp.zeros(4))
    np.testing.assert_array_equal(norm.var[...], jnp.ones(4))


def test_layer_norm_equals_the_definition() -> None:
    """Each true step has mean 0 and variance 1 over its channels, as in Flax; padding is zero."""
    own, flax = LayerNorm(4), nnx.LayerNorm(4, epsilon=LAYER_EPSILON, rngs=nnx.Rngs(0))
    for norm in (own, flax):
        norm.scale[...], norm.bias[...] = jnp.arange(1.0, 5.0), jnp.arange(4.0)
    x = _input()
    exact = np.asarray(x, np.float64)
    centred = exact - exact.mean(axis=-1, keepdims=True)
    normal = centred / np.sqrt(exact.var(axis=-1, keepdims=True) + LAYER_EPSILON)
    expected = np.where(MASK, normal * np.arange(1, 5) + np.arange(4), 0)
    for training in (True, False):
        answer = own(x, MASK, jnp.float32(8), training=training)
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(own(x, None, jnp.float32(10), training=True), flax(x), rtol=1e-5, atol=1e-6)


def test_every_name_is_a_normalisation() -> None:
    assert set(NORMS) == set(get_args(Norm))
