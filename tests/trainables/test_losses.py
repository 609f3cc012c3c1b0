"""Sums and counts of losses and metrics, padding left out."""

from __future__ import annotations

import numpy as np
import pytest
from jax import numpy as jnp

from trainables.losses import classification, regression, step_mask, weights_of

RANDOM = np.random.default_rng(0)


def test_cross_entropy_and_accuracy() -> None:
    """The sums are those of the definition, over the examples that count."""
    logits = RANDOM.normal(size=(5, 3)).astype(np.float32)
    targets = np.array([0, 1, 2, 1, 0])
    weights = np.array([1, 1, 1, 0, 0], np.float32)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    sums = classification(jnp.asarray(logits), jnp.asarray(targets), jnp.asarray(weights))
    assert float(sums.loss) == pytest.approx(
        -np.log(probabilities[np.arange(3), targets[:3]]).sum(), rel=1e-6
    )
    assert float(sums.metric) == np.sum(logits[:3].argmax(axis=1) == targets[:3])
    assert float(sums.counted) == 3


def test_what_does_not_count_may_be_anything() -> None:
    """Even a NaN in a row that fills a batch does not reach a sum."""
    logits = jnp.array([[1.0, 2.0], [jnp.nan, jnp.nan]])
    sums = classification(logits, jnp.array([1, 1]), jnp.array([1.0, 0.0]))
    assert np.isfinite(float(sums.loss))
    squares = regression(jnp.array([[1.0], [jnp.nan]]), jnp.zeros(2), jnp.array([1.0, 0.0]))
    assert float(squares.loss) == 1


def test_an_output_by_step_counts_true_steps() -> None:
    """Of three examples of lengths 2, 3 and 1, the last one not counting, five steps count."""
    lengths = jnp.array([2, 3, 1])
    weights = weights_of("steps", jnp.array([1.0, 1.0, 0.0]), lengths, 3)
    np.testing.assert_array_equal(weights, [[1, 1, 0], [1, 1, 1], [0, 0, 0]])
    logits = jnp.asarray(RANDOM.normal(size=(3, 3, 4)), jnp.float32)
    targets = jnp.asarray(RANDOM.integers(0, 4, (3, 3)))
    sums = classification(logits, targets, weights)
    flat = np.asarray(weights, bool)
    assert float(sums.counted) == 5
    assert float(sums.metric) == np.sum((np.argmax(logits, -1) == targets)[flat])


def test_other_outputs_count_examples() -> None:
    """A class or a value counts once an example."""
    examples = jnp.array([1.0, 0.0])
    for output in ("class", "value"):
        np.testing.assert_array_equal(weights_of(output, examples, jnp.array([2, 3]), 3), examples)


def test_squared_error() -> None:
    """Loss and metric are both the squared error."""
    sums = regression(jnp.array([[1.0], [4.0]]), jnp.array([0.0, 1.0]), jnp.ones(2))
    assert (float(sums.loss), float(sums.metric), float(sums.counted)) == (10, 10, 2)


def test_step_mask() -> None:
    """A length of L or more masks nothing, 0 masks all."""
    np.testing.assert_array_equal(step_mask(jnp.array([0, 2, 3]), 3), [[0, 0, 0], [1, 1, 0], [1, 1, 1]])
