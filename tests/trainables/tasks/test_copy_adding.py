"""The generated tasks: copy memory and the adding problem."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from trainables.tasks.adding import Adding
from trainables.tasks.copy import Copy


@pytest.mark.parametrize("delay", [1, 30, 300])
def test_copy_sequences_are_the_published_ones(tmp_path: Path, delay: int) -> None:
    data = Copy().load({"delay": delay, "examples": 100, "held_out": 20}, tmp_path)
    inputs, targets = np.array(data.train.inputs), np.array(data.train.targets)
    assert inputs.shape == targets.shape == (100, delay + 20)
    assert ((inputs[:, :10] >= 1) & (inputs[:, :10] <= 8)).all()
    assert (inputs[:, -11] == 9).all()
    blank = np.delete(inputs, [*range(10), delay + 9], axis=1)
    assert not blank.any()
    assert (targets[:, -10:] == inputs[:, :10]).all()
    assert not targets[:, :-10].any()
    assert (data.train.lengths == delay + 20).all()
    assert (data.signature.classes, data.signature.vocabulary) == (9, 10)


def test_the_trivial_loss_of_copy_is_ten_guesses(tmp_path: Path) -> None:
    """Within what the rates cost that are counted in training instead of known."""
    data = Copy().load({"delay": 300, "examples": 3000, "held_out": 1000}, tmp_path)
    assert data.trivial_loss["validation"] == pytest.approx(10 * math.log(8) / 320, rel=0.01)
    # Answering blank and then any symbol is wrong on seven of eight of the last ten.
    assert data.chance["validation"] == pytest.approx((310 + 10 / 8) / 320, abs=2e-4)
    # A sweep that minimises the loss is shown the loss to beat, not the accuracy.
    assert data.constant_answer("loss") == data.trivial_loss
    assert data.constant_answer("accuracy") == data.chance
    symbols = np.bincount(np.ravel(data.validation.inputs[:, :10]), minlength=9)
    assert np.abs(symbols[1:9] / 10_000 - 1 / 8).max() < 0.015


def test_adding_problems_are_the_published_ones(tmp_path: Path) -> None:
    data = Adding().load({"length": 101, "examples": 3000, "held_out": 3000}, tmp_path)
    inputs, targets = np.array(data.train.inputs), np.array(data.train.targets)
    assert inputs.shape == (3000, 101, 2)
    values, marks = inputs[:, :, 0], inputs[:, :, 1]
    assert ((values >= 0) & (values < 1)).all()
    assert (marks[:, :50].sum(axis=1) == 1).all()
    assert (marks[:, 50:].sum(axis=1) == 1).all()
    assert set(np.unique(marks)) == {0.0, 1.0}
    assert targets == pytest.approx((values * marks).sum(axis=1))
    # Every step is marked at some time, first and last too.
    assert (marks.sum(axis=0) > 0).all()


def test_the_trivial_loss_of_adding_is_a_sixth(tmp_path: Path) -> None:
    data = Adding().load({"length": 10, "examples": 1000, "held_out": 20_000}, tmp_path)
    # The variance of two U[0, 1), to three standard errors.
    assert data.chance["validation"] == pytest.approx(1 / 6, abs=0.005)
    assert data.trivial_loss == data.chance
    assert Adding().direction == "minimize"


def test_the_seed_decides(tmp_path: Path) -> None:
    for task in (Copy(), Adding()):
        digests = {
            task.load({"examples": 10, "held_out": 5, "seed": seed}, tmp_path).digest for seed in (0, 1)
        }
        assert len(digests) == 2
