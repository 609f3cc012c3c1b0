"""Hashed counters are uniform, and apart from stream to stream."""

from __future__ import annotations

import numpy as np
import pytest
from jax import numpy as jnp

from trainables.counter import folded, mixed, uniform

SEED = jnp.array([0, 7], jnp.uint32)


def test_a_hash_is_a_bijection() -> None:
    """Different words stay different."""
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
    """The numbers of one step tell nothing of the next step's, nor of another seed's."""
    streams = [folded(SEED, jnp.uint32(step)) for step in range(4)]
    streams += [folded(jnp.array([0, 8], jnp.uint32), jnp.uint32(0)), folded(SEED[::-1], jnp.uint32(0))]
    drawn = np.stack([np.asarray(uniform(stream, (20_000,))) for stream in streams])
    correlations = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.max(np.abs(correlations)) < 0.04
