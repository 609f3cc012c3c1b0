"""The network: what padding, dropout, towers and outputs do to its answers."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from tests.trainables.toy import CLASSES, LENGTH, VOCABULARY, split, toy_trial
from trainables.model import Model, Training
from trainables.tasks.base import Scale, Signature

TOKENS = Signature("class", CLASSES, VOCABULARY, 1, LENGTH)
BATCH = 4


def _model(signature: Signature = TOKENS, **options: Any) -> Model:
    trial = toy_trial(model={"depth": 2})
    return Model(trial.model, trial.ranges(), signature, rngs=nnx.Rngs(0), **options)


def _batch() -> tuple[jax.Array, jax.Array]:
    examples = split(BATCH, 0)
    return jnp.asarray(examples.inputs), jnp.asarray(examples.lengths)


def _training(rate: float = 0.3, record: bool = True) -> Training:
    return Training(jnp.float32(rate), jax.random.key(1), jnp.asarray(record))


def _longer(inputs: jax.Array, by: int) -> jax.Array:
    """Pad the time axis with what no model may see: token 5, not the padding token."""
    return jnp.pad(inputs, ((0, 0), (0, by)), constant_values=5)


@pytest.mark.parametrize("training", [None, _training()], ids=["evaluation", "training"])
def test_padding_does_not_reach_the_answer(training: Training | None) -> None:
    """The same sequences in longer arrays, filled with anything, give the same answers and statistics."""
    inputs, lengths = _batch()
    short, long = _model(), _model()
    one = short(inputs, lengths, training)
    other = long(_longer(inputs, 9), lengths, training)
    np.testing.assert_allclose(one[0], other[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-5)
    for here, there in zip(
        *(jax.tree.leaves(nnx.state(m, nnx.BatchStat)) for m in (short, long)), strict=True
    ):
        np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-7)


def test_full_length_needs_no_lengths() -> None:
    """Without padding, giving no lengths is the same as giving L for each."""
    inputs, _ = _batch()
    lengths = jnp.full(BATCH, LENGTH)
    for training in (None, _training()):
        one, other = _model()(inputs, None, training), _model()(inputs, lengths, training)
        np.testing.assert_allclose(one[0], other[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one[1], other[1], rtol=1e-5)


def test_gradients_do_not_see_padding() -> None:
    """Parameters get the same gradients in longer arrays."""
    inputs, lengths = _batch()
    graph, params, stats = nnx.split(_model(), nnx.Param, nnx.BatchStat)

    def loss(params: Any, inputs: jax.Array) -> jax.Array:
        fresh = nnx.State(nnx.to_pure_dict(stats))
        logits, _ = nnx.merge(graph, params, fresh)(inputs, lengths, _training())
        return jnp.sum(logits**2)

    one, other = jax.grad(loss)(params, inputs), jax.grad(loss)(params, _longer(inputs, 5))
    for here, there in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-4)


def test_hidden_norms_are_of_true_steps() -> None:
    """The norm recorded of the first layer is that of its states, averaged over true steps."""
    inputs, lengths = _batch()
    model = _model()
    _, norms = model(inputs, lengths, _training(rate=0.0))
    probe = _model()
    mask = jnp.arange(LENGTH) < lengths[:, None]
    x = jnp.where(mask[..., None], probe.encoder(inputs), 0)
    normal = probe.blocks[0].norm(x, mask[..., None], jnp.sum(lengths).astype(jnp.float32), training=True)
    states = jnp.stack([probe.blocks[0].layer.run(normal[b], lengths[b])[1] for b in range(BATCH)])
    expected = np.mean(np.linalg.norm(np.abs(states), axis=-1)[np.asarray(mask)])
    assert float(norms[0]) == pytest.approx(float(expected), rel=1e-5)
    np.testing.assert_array_equal(_model()(inputs, lengths, _training(record=False))[1], np.zeros(2))


def test_dropout_drops_whole_channels_of_a_sequence() -> None:
    """A traced rate of 0 drops nothing; a rate of 0.3 changes the answer with the key alone."""
    inputs, lengths = _batch()

    @jax.jit
    def answer(rate: jax.Array, key: jax.Array) -> jax.Array:
        return _model()(inputs, lengths, Training(rate, key, jnp.asarray(False)))[0]

    keys = jax.random.split(jax.random.key(0), 2)
    np.testing.assert_array_equal(answer(0.0, keys[0]), answer(0.0, keys[1]))
    np.testing.assert_array_equal(answer(0.3, keys[0]), answer(0.3, keys[0]))
    assert np.all(np.max(np.abs(answer(0.3, keys[0]) - answer(0.3, keys[1])), axis=1) > 0)


def test_two_towers_share_an_encoder() -> None:
    """A pair's answer does not depend on the other pairs' order, and does on which document comes first."""
    signature = Signature("class", 2, VOCABULARY, 1, LENGTH, towers=2)
    examples = split(2 * BATCH, 0)
    inputs = jnp.asarray(examples.inputs).reshape(BATCH, 2, LENGTH)
    lengths = jnp.asarray(examples.lengths).reshape(BATCH, 2)
    model = _model(signature)
    logits, _ = model(inputs, lengths)
    assert logits.shape == (BATCH, 2)
    np.testing.assert_allclose(model(inputs[::-1], lengths[::-1])[0], logits[::-1], rtol=1e-5, atol=1e-6)
    swapped = model(inputs[:, ::-1], lengths[:, ::-1])[0]
    assert np.max(np.abs(swapped - logits)) > 1e-3


def test_numbers_are_scaled_and_steps_are_answered() -> None:
    """Stored bytes become (stored - shift) * factor; an output by step has logits at each."""
    random = np.random.default_rng(0)
    stored = jnp.asarray(random.integers(0, 256, (BATCH, LENGTH, 3)), jnp.uint8)
    scaled = (stored.astype(jnp.float32) - 128.0) * jnp.array([0.1, 0.2, 0.3])
    raw = Signature("steps", CLASSES, None, 3, LENGTH, scale=Scale((128.0,), (0.1, 0.2, 0.3)))
    plain = Signature("steps", CLASSES, None, 3, LENGTH)
    one, other = _model(raw)(stored, None)[0], _model(plain)(scaled, None)[0]
    assert one.shape == (BATCH, LENGTH, CLASSES)
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_blocks_start_apart() -> None:
    """Blocks drawn together are drawn differently."""
    first, second = _model().blocks
    for one, other in ((first.layer.C, second.layer.C), (first.mix.kernel, second.mix.kernel)):
        assert np.max(np.abs(one[...] - other[...])) > 0.1
