"""Chance is the score of a constant answer that is chosen on the training split, for every task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.published import MADE, SMALL
from trainables.data.cache import Writer
from trainables.data.evaluation_protocol import constant_scores
from trainables.data.task import IGNORED, Encoding, Progress, Signature, Source, Split, Task
from trainables.tasks import TASKS

BY_STEP = {"copy"}
"""Tasks whose best constant answer depends on the step: blanks, and a symbol at the last ten steps."""

HELD_OUT = ("validation", "test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with all files that tasks read."""
    root = tmp_path_factory.mktemp("data")
    for make in dict.fromkeys(MADE.values()):
        make(root)
    return root


def pairs(split: Split, *, by_step: bool) -> list[tuple[int, int]]:
    """Return the step of each counted target, 0 unless answers depend on it, and its class."""
    targets = np.asarray(split.targets)
    rows = targets.reshape(len(targets), -1)
    return [
        (place if by_step else 0, target)
        for row in rows.tolist()
        for place, target in enumerate(row)
        if target != IGNORED
    ]


def smoothed(counts: Counter[int], prior: Mapping[int, float]) -> dict[int, float]:
    total = counts.total() + 1
    return {number: (counts[number] + share) / total for number, share in prior.items()}


def expected(train: Split, scored: Split, classes: int, *, by_step: bool) -> tuple[float, float]:
    """Return accuracy and loss, counted one by one."""
    whole = smoothed(
        Counter(target for _, target in pairs(train, by_step=False)),
        dict.fromkeys(range(classes), 1 / classes),
    )
    known = {0: whole}
    if by_step:
        places: dict[int, Counter[int]] = {}
        for place, target in pairs(train, by_step=True):
            places.setdefault(place, Counter())[target] += 1
        known = {place: smoothed(counts, whole) for place, counts in places.items()}
    best = {place: max(rates, key=lambda number: rates[number]) for place, rates in known.items()}
    asked = pairs(scored, by_step=by_step)
    right = sum(best[place] == target for place, target in asked)
    loss = -sum(math.log(known[place][target]) for place, target in asked)
    return right / len(asked), loss / len(asked)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("split", HELD_OUT)
def test_chance_of_every_task_is_that_of_training(name: str, split: str, folder: Path) -> None:
    data = TASKS[name].load(SMALL.get(name, {}), folder)
    chance, loss = data.constant_answer(TASKS[name].metric)[split], data.constant_answer("loss")[split]
    if data.signature.output == "value":
        error = np.mean((np.float64(data.split(split).targets) - np.float64(data.train.targets).mean()) ** 2)
        assert chance == pytest.approx(error)
        assert loss == chance
        return
    accuracy, nats = expected(data.train, data.split(split), data.signature.classes, by_step=name in BY_STEP)
    assert loss == pytest.approx(nats)
    assert chance == pytest.approx(nats / math.log(2) if TASKS[name].metric == "bits" else accuracy)


class Lopsided(Task):
    """A task with 3 classes: training has 70 % zeros, validation 20 %, and test none."""

    name = "lopsided"
    title = "Classes that are unequally frequent in the splits"

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        return Source("made up", comparable=False, note="made up")

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        for split, counts in {"train": (70, 20, 10), "validation": (2, 7, 1), "test": (0, 1, 9)}.items():
            targets = np.repeat(np.arange(3, dtype=np.int32), counts)
            out.put(f"{split}.inputs", np.ones((len(targets), 4), np.uint8))
            out.put(f"{split}.lengths", np.full(len(targets), 4, np.int32))
            out.put(f"{split}.targets", targets)
        return Encoding(Signature("class", 3, 2, 1, 4))


def test_neither_hindsight_nor_equal_classes(tmp_path: Path) -> None:
    """One in 3 classes would be wrong, and so would the most frequent class of the split itself."""
    data = Lopsided().load({}, tmp_path)
    assert data.chance == {"validation": 0.2, "test": 0.0}
    rates = [(count + 1 / 3) / 101 for count in (70, 20, 10)]
    loss = -(2 * math.log(rates[0]) + 7 * math.log(rates[1]) + math.log(rates[2])) / 10
    assert data.trivial_loss["validation"] == pytest.approx(loss)


@pytest.mark.parametrize("depends", [False, True])
def test_an_answer_depends_on_the_step_where_training_shows_it(depends: bool) -> None:
    """100 sequences of 6 steps, the first 3 of which are always 0 if answers depend on the step."""
    rng = np.random.default_rng(0)
    targets = {split: rng.choice(2, size=(100, 6), p=(0.4, 0.6)) for split in ("train", *HELD_OUT)}
    if depends:
        for rows in targets.values():
            rows[:, :3] = 0
    chance, _ = constant_scores(Signature("steps", 2, 3, 1, 6), targets)
    ones = float((targets["test"][:, 3:] == 1).mean())
    assert chance["test"] == pytest.approx(
        (1 + ones) / 2 if depends else float((targets["test"] == 1).mean())
    )
