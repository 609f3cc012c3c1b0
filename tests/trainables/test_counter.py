"""Hashed counters are uniform and independent between streams; an epoch's order is a permutation."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from trainables.counter import folded, mixed, order_of_steps, permuted, uniform

SEED = jnp.array([0, 7], jnp.uint32)


def test_a_hash_is_a_bijection() -> None:
    """Different words have different hashes."""
    words = np.asarray(mixed(jnp.arange(2**16, dtype=jnp.uint32)))
    assert len(np.unique(words)) == 2**16


@pytest.mark.parametrize("seed", [0, 1, 2**31])
def test_uniform(seed: int) -> None:
    """Numbers fill [0, 1) evenly, and neighbours are not correlated."""
    drawn = np.asarray(uniform(jnp.array([seed, 0], jnp.uint32), (100, 1000)))
    assert 0 <= drawn.min() < drawn.max() < 1
    counts = np.bincount((drawn * 64).astype(int).ravel(), minlength=64)
    expected = drawn.size / 64
    # 63 degrees of freedom: mean 63, standard deviation 11.2; 120 is five of them away.
    assert np.sum((counts - expected) ** 2 / expected) < 120
    assert abs(np.corrcoef(drawn.ravel()[:-1], drawn.ravel()[1:])[0, 1]) < 0.02


def test_streams_of_consecutive_steps_are_apart() -> None:
    """Numbers of one step are independent of those of the next step and of another seed."""
    streams = [folded(SEED, jnp.uint32(step)) for step in range(4)]
    streams += [folded(jnp.array([0, 8], jnp.uint32), jnp.uint32(0)), folded(SEED[::-1], jnp.uint32(0))]
    drawn = np.stack([np.asarray(uniform(stream, (20_000,))) for stream in streams])
    correlations = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.max(np.abs(correlations)) < 0.04


def _epoch(size: int, seed: int = 0, epoch: int = 0) -> np.ndarray:
    words = jnp.array(divmod(seed, 2**32), jnp.uint32)
    return np.asarray(permuted(jnp.arange(size, dtype=jnp.uint32), size, words, jnp.uint32(epoch)))


@pytest.mark.parametrize("size", [1, 2, 3, 17, 1009, 96_000])
def test_every_example_once(size: int) -> None:
    """All positions of an epoch give all examples."""
    np.testing.assert_array_equal(np.sort(_epoch(size)), np.arange(size))


def test_each_seed_and_epoch_has_its_own_order() -> None:
    """The same seed and epoch give the same order; another seed, its high word too, or epoch another."""
    orders = [_epoch(1000, seed, epoch) for seed in (0, 1, 2**32) for epoch in (0, 1)]
    np.testing.assert_array_equal(orders[0], _epoch(1000, 0, 0))
    for k, one in enumerate(orders):
        for other in orders[:k]:
            assert np.mean(one == other) < 0.02


def test_roughly_uniform() -> None:
    """Over many epochs each example has each position equally often, and neighbours separate."""
    size, epochs = 16, 8000
    positions = jnp.tile(jnp.arange(size, dtype=jnp.uint32), (epochs, 1))
    epoch = jnp.arange(epochs, dtype=jnp.uint32)[:, None]
    orders = np.asarray(permuted(positions, size, jnp.array([0, 5], jnp.uint32), epoch + 0 * positions))
    counts = np.array([np.bincount(orders[:, place], minlength=size) for place in range(size)])
    chi_squared = np.sum((counts - epochs / size) ** 2 / (epochs / size))
    # 225 degrees of freedom: mean 225, standard deviation 21; 330 is five of them away.
    assert chi_squared < 330
    order = _epoch(96_000, 3)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(np.arange(96_000), order)[0, 1]) < 0.02


def test_batches_go_through_epochs_without_repeats() -> None:
    """Consecutive steps read each epoch's examples once, a batch across the border included."""
    size, batch = 22, 8
    seed = jnp.array([0, 9], jnp.uint32)
    steps = jax.jit(lambda step: order_of_steps(step, 4, batch, size, seed))
    read = np.concatenate([steps(jnp.int32(step)) for step in (0, 4, 8)]).ravel()[: 4 * size]
    for epoch in read.reshape(4, size):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(size))
    np.testing.assert_array_equal(read[:size], _epoch(size, 9, 0))
    np.testing.assert_array_equal(read[size : 2 * size], _epoch(size, 9, 1))
