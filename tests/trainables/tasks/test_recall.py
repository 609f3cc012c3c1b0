"""MQAR, selective copying and induction heads follow their rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainables.data.task import IGNORED, Split
from trainables.errors import Refusal
from trainables.tasks import TASKS
from trainables.tasks.division import drawn
from trainables.tasks.induction import Induction
from trainables.tasks.mqar import Mqar
from trainables.tasks.recall import chosen, weighted
from trainables.tasks.selective_copy import SelectiveCopy

FEW = {"examples": 400, "held_out": 100}


def answered(tokens: list[int], pairs: int, asked: np.ndarray) -> dict[int, int]:
    """Return the value of each key that returns, by its step, as a dictionary of the pairs knows it."""
    value = dict(zip(tokens[: 2 * pairs : 2], tokens[1 : 2 * pairs : 2], strict=True))
    return {step: value[tokens[step]] - 1 for step in np.flatnonzero(asked).tolist()}


def check_mqar(split: Split, vocabulary: int, pairs: int | None = None) -> None:
    for row, length, targets in zip(split.inputs, split.lengths, split.targets, strict=True):
        tokens, asked = row[:length].tolist(), targets != IGNORED
        count = int(asked.sum())
        assert pairs in (None, count)
        keys, values = tokens[: 2 * count : 2], tokens[1 : 2 * count : 2]
        assert len(set(keys)) == len(set(values)) == count
        assert 2 <= min(keys) <= max(keys) <= vocabulary // 2
        assert vocabulary // 2 < min(values) <= max(values) <= vocabulary
        expected = answered(tokens, count, asked)
        assert {step: int(targets[step]) for step in expected} == expected
        assert sorted(tokens[step] for step in expected) == sorted(keys)
        assert all(step >= 2 * count and step % 2 == 0 for step in expected)


@pytest.mark.parametrize("filled", [False, True])
def test_mqar_asks_for_the_value_of_every_key(tmp_path: Path, filled: bool) -> None:
    data = Mqar().load({**FEW, "length": 64, "pairs": 8, "random_filler": filled}, tmp_path)
    assert (data.signature.classes, data.signature.vocabulary) == (8192, 8193)
    for split in (data.train, data.validation, data.test):
        check_mqar(split, 8192, pairs=8)
    rest = data.train.inputs[:, 16:][data.train.targets[:, 16:] == IGNORED]
    assert (np.unique(rest).size > 5000) if filled else (rest == 1).all()


def test_the_gaps_of_mqar_have_the_published_distribution(tmp_path: Path) -> None:
    """One pair in 32 steps: the slot g has the probability g^(a - 1) by the sum over all slots."""
    options = {"examples": 20_000, "held_out": 10, "length": 32, "pairs": 1, "vocabulary": 512}
    for power, expected in ((0.01, np.arange(1, 16) ** -0.99), (1.0, np.ones(15))):
        data = Mqar().load({**options, "power": power}, tmp_path)
        slots = (np.argmax(np.asarray(data.train.targets) != IGNORED, axis=1) - 2) // 2
        rates = np.bincount(slots, minlength=15) / 20_000
        assert rates == pytest.approx(expected / expected.sum(), abs=0.012)


def test_the_mixture_of_mqar_holds_the_published_kinds(tmp_path: Path) -> None:
    data = Mqar().load({"examples": 900, "held_out": 20, "mixture": True}, tmp_path)
    counted = (np.asarray(data.train.targets) != IGNORED).sum(axis=1)
    kinds, rows = np.unique(np.stack([data.train.lengths, counted]), axis=1, return_counts=True)
    assert dict(zip(map(tuple, kinds.T.tolist()), rows.tolist(), strict=True)) == {
        (64, 4): 500,
        (128, 8): 100,
        (256, 16): 100,
        (256, 32): 100,
        (256, 64): 100,
    }
    check_mqar(data.train, 8192)
    assert len(np.unique(counted[:50])) > 2  # the kinds are mixed
    assert data.further[-1] == "l1024_n256"
    for name in data.further:
        length, pairs = (int(part[1:]) for part in name.split("_"))
        further = data.split(f"test_{name}")
        assert (further.lengths == length).all()
        check_mqar(further, 8192, pairs)


def test_selective_copies_are_the_tokens_in_their_order(tmp_path: Path) -> None:
    data = SelectiveCopy().load({**FEW, "length": 50, "tokens": 6, "symbols": 9}, tmp_path)
    assert (data.signature.classes, data.signature.vocabulary) == (8, 11)
    places = np.zeros(50)
    for tokens, targets in zip(data.train.inputs, data.train.targets, strict=True):
        noise, asks = 9, 10
        read = tokens[:50]
        assert (read[read != noise] - 1 == targets[50:]).all()
        assert (tokens[50:] == asks).all()
        assert (targets[:50] == IGNORED).all()
        places += read != noise
    # 400 rows of 6 tokens in 50 places: 48 a place, to four standard deviations.
    assert np.abs(places - 48).max() < 4 * np.sqrt(48)
    assert data.chance["test"] == pytest.approx(1 / 8, abs=0.05)


def test_longer_sequences_hold_as_much_among_more_steps(tmp_path: Path) -> None:
    pairs = Mqar().load({**FEW, "length": 16, "pairs": 3, "vocabulary": 32, "reach": 4}, tmp_path)
    tokens = SelectiveCopy().load({**FEW, "length": 10, "tokens": 3, "symbols": 5, "reach": 8}, tmp_path)
    assert (pairs.further, tokens.further) == (("x2", "x4"), ("x2", "x4", "x8"))
    for times in (2, 4):
        split = pairs.split(f"test_x{times}")
        assert (split.lengths == 16 * times).all()
        check_mqar(split, 32, pairs=3)
    for times in (2, 4, 8):
        split = tokens.split(f"test_x{times}")
        noise, read = 5, split.inputs[:, : 10 * times]
        assert (split.inputs[:, 10 * times :] == 6).all()
        assert (read[read != noise].reshape(-1, 3) - 1 == split.targets[:, 10 * times :]).all()
        assert (split.targets[:, : 10 * times] == IGNORED).all()


def test_induction_asks_for_what_followed_the_trigger(tmp_path: Path) -> None:
    data = Induction().load({**FEW, "length": 12, "reach": 8}, tmp_path)
    assert data.further == ("x2", "x4", "x8")
    for times in (1, 2, 4, 8):
        split = data.split("test" if times == 1 else f"test_x{times}")
        assert split.inputs.shape == (100, 12 * times)
        for tokens, targets in zip(split.inputs.tolist(), split.targets.tolist(), strict=True):
            trigger = tokens[-1]
            assert trigger == 17
            assert tokens.count(trigger) == 2
            assert targets[-1] == tokens[tokens.index(trigger) + 1] - 1
            assert set(targets[:-1]) == {IGNORED}
    places = np.argmax(np.asarray(data.train.inputs) == 17, axis=1)
    assert set(places.tolist()) == set(range(10))


def test_numbers_without_repetition_are_uniform() -> None:
    numbers = chosen(np.random.default_rng(0), 30_000, 3, 5)
    assert (np.sort(numbers, axis=1)[:, 1:] > np.sort(numbers, axis=1)[:, :-1]).all()
    codes = numbers @ np.array([25, 5, 1])
    rates = np.bincount(codes)[np.unique(codes)] / 30_000
    assert len(rates) == 60
    assert rates == pytest.approx(np.full(60, 1 / 60), abs=0.004)


def test_weighted_places_are_successive_draws() -> None:
    """The chance of an order is the product of its weights, each by what is left of their sum."""
    weights = np.array([5.0, 3.0, 2.0])
    places = weighted(np.random.default_rng(0), 40_000, 2, weights)
    for first in range(3):
        for second in {0, 1, 2} - {first}:
            chance = weights[first] / 10 * weights[second] / (10 - weights[first])
            assert ((places == [first, second]).all(axis=1)).mean() == pytest.approx(chance, abs=0.01)


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("mqar", {"length": 15}, "must be even"),
        ("mqar", {"length": 12, "pairs": 4}, "4 steps a pair"),
        ("mqar", {"vocabulary": 8, "length": 64, "pairs": 4}, "Give at least 10"),
        ("mqar", {"mixture": True, "vocabulary": 256}, "Give at least 514"),
        ("mqar", {"mixture": True, "reach": 2}, "tests of its own"),
        ("selective_copy", {"length": 10, "tokens": 11}, "at most the length"),
        ("selective_copy", {"length": 1, "tokens": 1, "symbols": 3}, "three splits"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    name: str, options: dict[str, Any], match: str, tmp_path: Path
) -> None:
    with pytest.raises(Refusal, match=match):
        TASKS[name].load({**FEW, **options}, tmp_path)


def test_long_sequences_are_drawn_in_parts() -> None:
    """No more than 2^27 tokens at once, however many rows are wanted."""
    asked: list[int] = []

    def draw(rows: int) -> tuple[np.ndarray, ...]:
        asked.append(rows)
        return (np.zeros((rows, 1), np.int64),)

    kept = [rows.stop - rows.start for rows, _ in drawn("recall", None, 10, 2**25, draw)]
    assert kept == [4, 4, 2]
    assert max(asked) == 4
    asked.clear()
    list(drawn("recall", None, 10, 64, draw))
    assert asked == [31], "sequences of usual lengths are drawn as before"
