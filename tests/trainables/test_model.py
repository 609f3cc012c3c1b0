"""The network: padding, normalisation, dropout, towers and outputs."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from tests.trainables.layers import reference
from tests.trainables.toy import CLASSES, LENGTH, VOCABULARY, split, toy_trial
from trainables.data.task import Scale, Signature
from trainables.model import POOLINGS, Model, Training
from trainables.norm import EPSILON
from trainables.settings import Pooling

TOKENS = Signature("class", CLASSES, VOCABULARY, 1, LENGTH)
BATCH = 4
LONGER = 9


def _model(signature: Signature = TOKENS, **network: Any) -> Model:
    trial = toy_trial(model=network)
    return Model(trial.model, trial.model.complete().ranges, signature, rngs=nnx.Rngs(0))


@cache
def _parts(signature: Signature) -> tuple[Any, Any, Any]:
    graph = nnx.split(nnx.eval_shape(lambda: _model(signature)), nnx.Param, nnx.BatchStat)[0]

    @jax.jit
    def drawn() -> list[Any]:
        states = nnx.split(_model(signature), nnx.Param, nnx.BatchStat)[1:]
        return [nnx.to_pure_dict(state) for state in states]

    return graph, *drawn()


def _answer(signature: Signature, params: Any, inputs: jax.Array, lengths: Any, training: Any) -> Any:
    """Return logits and running statistics."""
    graph, _, stats = _parts(signature)
    model = nnx.merge(graph, nnx.State(params), nnx.State(stats))
    logits = model(inputs, lengths, training)
    return logits, nnx.to_pure_dict(nnx.state(model, nnx.BatchStat))


_compiled = jax.jit(_answer, static_argnums=0)


def _ask(inputs: jax.Array, lengths: Any, training: Any = None, signature: Signature = TOKENS) -> Any:
    return _compiled(signature, _parts(signature)[1], inputs, lengths, training)


def _batch() -> tuple[jax.Array, jax.Array]:
    examples = split(BATCH, 0)
    return jnp.asarray(examples.inputs), jnp.asarray(examples.lengths)


def _training(rate: float = 0.3, key: int = 1) -> Training:
    return Training(jnp.float32(rate), jnp.array([0, key], jnp.uint32))


def _longer(inputs: jax.Array) -> jax.Array:
    """Pad the time axis with token 5, not the padding token, which no model may see."""
    return jnp.pad(inputs, ((0, 0), (0, LONGER)), constant_values=5)


def _assert_close(one: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    for actual, expected in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("training", [None, _training()], ids=["evaluation", "training"])
def test_padding_does_not_reach_the_answer(training: Training | None) -> None:
    """The same sequences in longer arrays, filled with anything, give the same answers and statistics."""
    inputs, lengths = _batch()
    _assert_close(_ask(inputs, lengths, training), _ask(_longer(inputs), lengths, training))


def test_full_length_needs_no_lengths() -> None:
    """Without padding, omitting the lengths equals a length of L for each sequence."""
    inputs, _ = _batch()
    _assert_close(_ask(inputs, None, _training()), _ask(inputs, jnp.full(BATCH, LENGTH), _training()))


@pytest.mark.slow
def test_the_last_step_is_the_last_true_one() -> None:
    """`last` reads each sequence at its true end, `mean` averages its true steps; no other step counts."""
    inputs, lengths = _batch()
    x = jnp.asarray(np.random.default_rng(0).normal(size=(BATCH, LENGTH, 3)), jnp.float32)
    x = jnp.where(jnp.arange(LENGTH)[:, None] < lengths[:, None, None], x, 0)
    ends = np.asarray(lengths)
    rows = [np.asarray(x[row, :end], np.float64) for row, end in enumerate(ends)]
    np.testing.assert_array_equal(POOLINGS["last"](x, lengths), [row[-1] for row in rows])
    np.testing.assert_allclose(POOLINGS["mean"](x, lengths), [row.mean(axis=0) for row in rows], rtol=1e-5)
    np.testing.assert_array_equal(POOLINGS["last"](x, None), x[:, -1])

    @jax.jit
    def answer(inputs: jax.Array) -> jax.Array:
        model = _model(pooling="last", layer="none", options={}, bidirectional=False)
        return model(inputs, lengths)

    _assert_close(answer(inputs.at[:, 0].set(5)), answer(inputs))
    assert set(POOLINGS) == set(get_args(Pooling))


@pytest.mark.slow
def test_gradients_do_not_see_padding() -> None:
    """Parameters get the same gradients in longer arrays."""
    _, lengths = _batch()
    params = _parts(TOKENS)[1]

    @jax.jit
    @jax.grad
    def gradient(params: Any, inputs: jax.Array) -> jax.Array:
        return jnp.sum(_answer(TOKENS, params, inputs, lengths, _training())[0] ** 2)

    inputs, _ = _batch()
    _assert_close(gradient(params, inputs), gradient(params, _longer(inputs)), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("d_state", [6, 8])
def test_hidden_norms_are_those_of_the_states_of_an_evaluation(d_state: int) -> None:
    """Heads, the whole state and the closed form, in float64 from the parameters, over true steps.

    The training mode of the normalisation, the last step alone, and the whole state in place of a head give
    other numbers.
    """
    inputs, lengths = _batch()
    heads, true = 2, [int(length) for length in lengths]
    model = _model(d_state=d_state, options={"heads": heads}, bidirectional=False)
    block = model.blocks[0]
    block.norm.mean[...] = block.norm.mean[...] + 0.3
    block.norm.var[...] = block.norm.var[...] * 2
    actual = np.asarray(jax.jit(lambda: model.hidden_norms(inputs, lengths))()[0], np.float64)
    p = {
        name: np.asarray(value, np.float64)
        for name, value in nnx.to_pure_dict(nnx.state(block.layer)).items()
    }
    embedded = np.asarray(model.encoder(inputs), np.float64)
    mean, var = (np.asarray(part[...], np.float64) for part in (block.norm.mean, block.norm.var))
    scale, bias = (np.asarray(part[...], np.float64) for part in (block.norm.scale, block.norm.bias))
    in_evaluation = (embedded - mean) / np.sqrt(var + EPSILON) * scale + bias
    gamma = np.exp(-np.exp(p["gamma_log"]))

    def norms(rows: np.ndarray, last: int = 0) -> np.ndarray:
        found = []
        for row, length in zip(rows, true, strict=True):
            states = reference.rotrnn(p, row[:length])[1]
            of_heads = np.linalg.norm(states.reshape(length, heads, -1), axis=-1)
            expected = np.sqrt(1 - gamma ** (2 * np.arange(1, length + 1)[:, None]))
            parts = (of_heads.mean(axis=1), np.linalg.norm(states, axis=-1), expected.mean(axis=1))
            found.append(np.stack(parts, axis=1)[-last:])
        return np.concatenate(found).mean(axis=0)

    expected = norms(in_evaluation)
    np.testing.assert_allclose(actual, expected, rtol=1e-4)
    assert expected[1] > 1.2 * expected[0]
    everything = np.concatenate([row[:length] for row, length in zip(embedded, true, strict=True)])
    in_training = (embedded - everything.mean(axis=0)) / np.sqrt(
        everything.var(axis=0) + EPSILON
    ) * scale + bias
    for wrong in (norms(in_training), norms(in_evaluation, last=1)):
        assert np.all(np.abs(wrong[:2] / expected[:2] - 1) > 0.01)


def test_dropout_has_a_traced_rate() -> None:
    """A rate of 0 drops nothing; with a rate of 0.3 the answer depends on the key, for every sequence."""
    inputs, lengths = _batch()

    def answer(rate: float, key: int) -> np.ndarray:
        return np.asarray(_ask(inputs, lengths, _training(rate, key))[0])

    np.testing.assert_array_equal(answer(0.0, 1), answer(0.0, 2))
    np.testing.assert_array_equal(answer(0.3, 1), answer(0.3, 1))
    assert np.all(np.max(np.abs(answer(0.3, 1) - answer(0.3, 2)), axis=1) > 1e-3)
    mean = np.mean([answer(0.3, key) for key in range(200)], axis=0)
    assert np.max(np.abs(mean - answer(0.0, 0))) < 0.5 * np.std([answer(0.3, key) for key in range(20)])


@pytest.mark.slow
def test_two_towers_share_an_encoder() -> None:
    """A pair's answer does not depend on the other pairs' order, and does on which document comes first."""
    signature = Signature("class", 2, VOCABULARY, 1, LENGTH, towers=2)
    examples = split(2 * BATCH, 0)
    inputs = jnp.asarray(examples.inputs).reshape(BATCH, 2, LENGTH)
    lengths = jnp.asarray(examples.lengths).reshape(BATCH, 2)
    logits = _ask(inputs, lengths, signature=signature)[0]
    assert logits.shape == (BATCH, 2)
    _assert_close(_ask(inputs[::-1], lengths[::-1], signature=signature)[0], logits[::-1])
    swapped = _ask(inputs[:, ::-1], lengths[:, ::-1], signature=signature)[0]
    assert np.max(np.abs(swapped - logits)) > 1e-3


@pytest.mark.slow
def test_numbers_are_scaled_and_steps_are_answered() -> None:
    """Stored bytes become (stored - shift) * factor; an output by step has logits at each."""
    random = np.random.default_rng(0)
    stored = jnp.asarray(random.integers(0, 256, (BATCH, LENGTH, 3)), jnp.uint8)
    scaled = (stored.astype(jnp.float32) - 128.0) * jnp.array([0.1, 0.2, 0.3])
    raw = Signature("steps", CLASSES, None, 3, LENGTH, scale=Scale((128.0,), (0.1, 0.2, 0.3)))
    plain = Signature("steps", CLASSES, None, 3, LENGTH)
    one, other = _ask(stored, None, signature=raw)[0], _ask(scaled, None, signature=plain)[0]
    assert one.shape == (BATCH, LENGTH, CLASSES)
    _assert_close(one, other, atol=1e-5)


@pytest.mark.slow
def test_blocks_start_apart() -> None:
    """Blocks that are initialised together differ."""
    draw = jax.jit(lambda: nnx.to_pure_dict(nnx.state(_model(depth=2))))
    first, second = draw()["blocks"].values()
    for path in (("layer", "C"), ("mix", "kernel")):
        assert np.max(np.abs(first[path[0]][path[1]] - second[path[0]][path[1]])) > 0.1
