"""Parity, modular arithmetic and group words follow their rules at every length."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainables.data.task import IGNORED, Split, TaskData
from trainables.errors import Refusal
from trainables.tasks import TASKS
from trainables.tasks.group_words import GroupWords, multiplication
from trainables.tasks.modular import SYMBOLS, Modular
from trainables.tasks.parity import Parity

FEW = {"examples": 300, "held_out": 100}


def rows(split: Split) -> list[tuple[list[int], Any]]:
    """Return the true tokens of each sequence with its target or its targets."""
    return [
        (tokens[:length].tolist(), target)
        for tokens, length, target in zip(split.inputs, split.lengths, split.targets, strict=True)
    ]


def every_split(data: TaskData) -> dict[str, Split]:
    names = ("train", "validation", "test", *(f"test_{name}" for name in data.further))
    return {name: data.split(name) for name in names}


def test_parity_counts_ones(tmp_path: Path) -> None:
    data = Parity().load(FEW, tmp_path)
    for split in every_split(data).values():
        for tokens, target in rows(split):
            assert target == tokens.count(2) % 2
            assert set(tokens) <= {1, 2}


def text_of(tokens: Sequence[int], modulus: int) -> str:
    """Return an expression with its digits as Python numbers."""
    return "".join(str(token - 1) if token <= modulus else SYMBOLS[token - 1 - modulus] for token in tokens)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"modulus": 3, "operators": "+", "length": 21, "min_length": 2},
        {"brackets": True},
        {"brackets": True, "operators": "+-", "modulus": 7, "min_length": 2},
    ],
)
def test_the_value_of_an_expression_is_that_of_python(tmp_path: Path, options: dict[str, Any]) -> None:
    data = Modular().load({**FEW, "reach": 2, **options}, tmp_path)
    modulus, seen = options.get("modulus", 5), set()
    for split in every_split(data).values():
        for tokens, target in rows(split):
            text = text_of(tokens, modulus)
            assert text.endswith("=")
            assert eval(text[:-1]) % modulus == target
            seen |= set(text)
    assert set(options.get("operators", "+-*")) <= seen
    assert ("(" in seen) == bool(options.get("brackets"))


def test_the_value_after_each_digit_is_that_of_the_expression_so_far(tmp_path: Path) -> None:
    data = Modular().load({**FEW, "answer": "steps", "length": 16, "reach": 1}, tmp_path)
    for tokens, targets in rows(data.train):
        text = text_of(tokens, 5)
        for step, target in enumerate(targets[: len(tokens)].tolist()):
            if text[step] in "+-*":
                assert target == IGNORED
            else:
                assert target == eval(text[: step + 1].rstrip("=")) % 5


def permutation_matrices(group: str) -> list[np.ndarray]:
    """Return the elements of S_n or A_n in lexicographic order, as matrices that act on row vectors."""
    degree = int(group[1:])
    matrices = [np.eye(degree, dtype=int)[list(p)] for p in permutations(range(degree))]
    return [m for m in matrices if group[0] == "S" or round(np.linalg.det(m)) == 1]


@pytest.mark.parametrize("group", ["S3", "A5", "S5"])
def test_products_of_permutations_are_products_of_matrices(tmp_path: Path, group: str) -> None:
    data = GroupWords().load({"group": group, "examples": 30, "held_out": 10, "length": 12}, tmp_path)
    elements = permutation_matrices(group)
    assert data.signature.classes == len(elements) == len(multiplication(group))
    for tokens, targets in rows(data.train):
        running = np.eye(len(elements[0]), dtype=int)
        for token, target in zip(tokens, targets.tolist(), strict=True):
            running = running @ elements[token - 1]
            assert (running == elements[target]).all()


def test_z60_adds(tmp_path: Path) -> None:
    data = GroupWords().load({**FEW, "group": "Z60"}, tmp_path)
    for tokens, targets in rows(data.validation):
        assert (np.cumsum(np.array(tokens) - 1) % 60 == targets).all()


@pytest.mark.parametrize("group", ["S3", "Z60", "A4xZ5", "A5", "S5"])
def test_the_tables_are_those_of_groups(group: str) -> None:
    table = multiplication(group)
    order = {"S3": 6, "S5": 120}.get(group, 60)
    assert table.shape == (order, order)
    assert (table[0] == np.arange(order)).all()
    assert (np.sort(table, axis=0) == np.arange(order)[:, None]).all()
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(order, size=(3, 500))
    assert (table[table[a, b], c] == table[a, table[b, c]]).all()
    assert bool((table == table.T).all()) == (group == "Z60")


def test_a4_x_z5_is_solvable_and_a5_is_not() -> None:
    """The subgroup of commutators gets smaller until one element is left, or stays what it is."""
    sizes = {}
    for group in ("A4xZ5", "A5"):
        table = multiplication(group)
        inverse = np.argmax(table == 0, axis=1)
        elements, sizes[group] = np.arange(60), [60]
        for _ in range(3):
            a, b = elements[:, None], elements
            found = set(table[table[table[inverse[a], inverse[b]], a], b].ravel().tolist())
            while (more := {int(table[x, y]) for x in found for y in found}) != found:
                found = more
            elements = np.array(sorted(found))
            sizes[group].append(len(elements))
    assert sizes == {"A4xZ5": [60, 4, 1, 1], "A5": [60, 60, 60, 60]}


def test_swaps_move_at_most_two_elements(tmp_path: Path) -> None:
    data = GroupWords().load({**FEW, "group": "S5", "swaps": True}, tmp_path)
    symbols = np.unique(data.train.inputs) - 1
    moved = [5 - np.trace(permutation_matrices("S5")[symbol]) for symbol in symbols]
    assert sorted(moved) == [0, *[2] * 10]
    assert len(np.unique(data.train.targets)) == 120


@pytest.mark.parametrize("name", ["parity", "modular", "group_words"])
def test_further_test_splits_score_what_lies_beyond_half_of_them(name: str, tmp_path: Path) -> None:
    task, options = TASKS[name], {**FEW, "length": 10}
    ends = task.load({**options, "answer": "end"}, tmp_path)
    steps = task.load({**options, "answer": "steps"}, tmp_path)
    assert ends.further == steps.further == ("x2", "x4", "x8")
    assert ends.signature.output == "class"
    assert ends.test.lengths.min() >= 3
    assert ends.test.lengths.max() == 10
    for times in (2, 4, 8):
        by_class, by_step = ends.split(f"test_x{times}"), steps.split(f"test_x{times}")
        assert by_class.lengths.min() > times * 5
        assert by_class.lengths.max() == times * 10
        assert (by_step.lengths == times * 10).all()
        counted = (by_step.targets != IGNORED).any(axis=0)
        assert not counted[: times * 5].any()
        assert counted[-1]


def test_no_sequence_is_in_two_splits_and_short_ones_are_in_some(tmp_path: Path) -> None:
    data = Parity().load({"length": 8, "min_length": 3, "examples": 5000, "held_out": 500}, tmp_path)
    splits = {name: {tuple(tokens) for tokens, _ in rows(split)} for name, split in every_split(data).items()}
    for name in ("validation", "test", "test_x2", "test_x4", "test_x8"):
        assert not splits["train"] & splits[name]
    assert not splits["validation"] & splits["test"]
    of_training = np.bincount(data.train.lengths, minlength=9)[3:]
    assert of_training.min() > 500  # of 5,000, uniform over six lengths up to the division of short ones


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("parity", {"length": 5, "min_length": 6}, "at most the length"),
        ("parity", {"length": 2, "min_length": 2}, "three splits"),
        ("modular", {"brackets": True, "answer": "steps"}, "has no value"),
        ("modular", {"min_length": 1}, "at least 2"),
        ("group_words", {"group": "A5", "swaps": True}, "without swaps"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    name: str, options: dict[str, Any], match: str, tmp_path: Path
) -> None:
    with pytest.raises(Refusal, match=match):
        TASKS[name].load({**FEW, **options}, tmp_path)
