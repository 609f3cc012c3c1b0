"""Consecutive steps read consecutive segments of a text, in an order that follows from the seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jax import numpy as jnp

from trainables.counter import order_of_streams
from trainables.tasks.char_lm import CharLm


def order(seed: int, steps: int, batch: int, size: int, first: int = 0) -> np.ndarray:
    """Return the examples of steps from `first` on, (steps, batch)."""
    words = jnp.array([0, seed], jnp.uint32)
    return np.asarray(order_of_streams(jnp.int32(first), steps, batch, size, words))


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(("batch", "size"), [(4, 27), (1, 5), (6, 6), (7, 100)])
def test_rows_are_streams_that_share_no_example(batch: int, size: int) -> None:
    """In every epoch each row goes on by one example, and fewer than a batch of them are left out."""
    length = size // batch
    for epoch in range(3):
        read = order(1, length, batch, size, epoch * length)
        assert ((read[1:] - read[:-1]) % size == 1).all()
        assert len(np.unique(read)) == length * batch > size - batch


@pytest.mark.slow
def test_the_order_follows_from_seed_and_step() -> None:
    """Equal for equal seeds from any step on; another seed and another epoch begin elsewhere."""
    whole = order(3, 40, 4, 2001)
    np.testing.assert_array_equal(whole[13:], order(3, 27, 4, 2001, 13))
    begins = {seed: order(seed, 1, 4, 2001)[0, 0] for seed in range(20)}
    assert len(set(begins.values())) > 15
    assert len({order(3, 1, 4, 2001, 500 * epoch)[0, 0] for epoch in range(20)}) > 15


def test_a_row_reads_the_text(tmp_path: Path) -> None:
    """What a row of a batch reads from step to step is one piece of the text, and asks for the next one."""
    data = CharLm().load({"source": "pydoc", "length": 50, "characters": 10_000, "reach": 1}, tmp_path)
    text = np.r_[np.asarray(data.train.inputs).ravel() - 1, data.train.targets[-1, -1]].tolist()
    size, batch = len(data.train), 8
    read = order(0, size // batch, batch, size)
    for row in range(batch):
        places = read[:, row]
        pieces = np.split(places, 1 + np.flatnonzero(np.diff(places) != 1))
        assert len(pieces) <= 2  # a row that comes to the end of the text goes on at its beginning
        for piece in pieces:
            seen = data.train.inputs[piece].ravel() - 1
            asked = data.train.targets[piece].ravel()
            start = piece[0] * 50
            assert seen.tolist() == text[start : start + len(seen)]
            assert asked.tolist() == text[start + 1 : start + 1 + len(seen)]


def test_states_are_carried_by_default_in_this_task_alone() -> None:
    assert CharLm.carries_state
