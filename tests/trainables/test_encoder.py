"""Encoders of tokens and of numbers."""

from __future__ import annotations

from typing import Any, get_args

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from tests.trainables.toy import CLASSES, LENGTH, VOCABULARY, split, toy_trial
from trainables.data.task import Scale, Signature
from trainables.encoder import ENCODERS, DenseEncoder, NoEncoder
from trainables.errors import Refusal
from trainables.model import Model
from trainables.settings import EncoderKind

TOKENS = Signature("class", CLASSES, VOCABULARY, 1, LENGTH)
BATCH = 4


def test_tokens_are_looked_up_as_one_hot_products() -> None:
    """The encoder of tokens is a dense layer of one-hot vectors, its gradient included."""
    inputs = jnp.asarray(split(BATCH, 0).inputs)
    graph, params = nnx.split(DenseEncoder(TOKENS, 8, rngs=nnx.Rngs(0)))
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(BATCH, LENGTH, 8)), jnp.float32)

    def looked_up(params: Any) -> jax.Array:
        return jnp.sum(weights * nnx.merge(graph, params)(inputs))

    def multiplied(params: Any) -> jax.Array:
        hot = jax.nn.one_hot(inputs, VOCABULARY)
        return jnp.sum(weights * (hot @ params["kernel"][...] + params["bias"][...]))

    both = jax.jit(lambda params: [jax.value_and_grad(rule)(params) for rule in (looked_up, multiplied)])
    for actual, expected in zip(*map(jax.tree.leaves, both(params)), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_no_encoder_hands_on_what_the_task_stores() -> None:
    """Tokens become one-hot vectors and numbers are scaled; no parameter is added."""
    tokens, numbers = jnp.array([[0, 3], [5, 1]]), jnp.array([[[1, 2], [3, 4]]], jnp.uint8)
    encoder = NoEncoder(TOKENS, VOCABULARY, rngs=nnx.Rngs(0))
    np.testing.assert_array_equal(encoder(tokens), np.eye(VOCABULARY)[np.asarray(tokens)])
    scaled = Signature("value", 1, None, 2, 2, scale=Scale((1.0,), (0.5, 2.0)))
    np.testing.assert_array_equal(NoEncoder(scaled, 2, rngs=nnx.Rngs(0))(numbers), [[[0, 2], [1, 6]]])
    assert not jax.tree.leaves(nnx.state(encoder, nnx.Param))
    assert set(ENCODERS) == set(get_args(EncoderKind))


@pytest.mark.parametrize(
    ("signature", "phrase"),
    [(TOKENS, "tokens, one-hot: 6"), (Signature("value", 1, None, 2, 9), "features: 2")],
)
def test_without_an_encoder_the_width_is_that_of_the_task(signature: Signature, phrase: str) -> None:
    """Another width is refused, with the right one."""
    settings = toy_trial(model={"encoder": "none"}).model
    with pytest.raises(Refusal, match=phrase):
        Model(settings, settings.complete().ranges, signature, rngs=nnx.Rngs(0))
