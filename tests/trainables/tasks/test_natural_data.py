"""Why tasks of natural data promise nothing, and what controls without a memory or an order reach there.

A `Requirement` says how far back an answer looks and whether the order of steps matters; the tests of
test_requirements.py hold every promise to two rules: what lacks the requirement makes at least half as many
errors as the best constant, and without an order the bag of the steps decides. On text neither promise of an
order keeps its rule. On pictures only the number of steps is unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier

from tests.data import cifar_subset
from trainables.data.task import Split, TaskData, completed
from trainables.tasks import TASKS

NATURAL = {
    *("listops", "text", "retrieval", "image", "pathfinder", "pathfinder16", "pathx"),
    *("speech_commands", "smnist", "psmnist", "char_lm"),
}
"""Tasks of natural data, or of rules that single tokens partly answer."""

Key = Callable[[np.ndarray], np.ndarray]
"""Windows (n, k), the answering step last -> what a control knows of them, (n, k)."""


def test_natural_data_promise_nothing() -> None:
    promise_nothing = {
        name for name, task in TASKS.items() if task.requires(completed(name, task.options, {})) is None
    }
    assert promise_nothing == NATURAL


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TaskData:
    options = {"source": "pydoc", "length": 64, "reach": 1}
    return TASKS["char_lm"].load(options, tmp_path_factory.mktemp("data"))


def _in_order(windows: np.ndarray) -> np.ndarray:
    return windows


def _in_a_bag(windows: np.ndarray) -> np.ndarray:
    """Sort the steps before the answering one."""
    return np.concatenate([np.sort(windows[:, :-1], axis=1), windows[:, -1:]], axis=1)


def _windows(split: Split, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all windows of `size` steps (n, size) and the targets of their last steps (n,)."""
    windows = np.lib.stride_tricks.sliding_window_view(split.inputs, size, axis=1)
    return windows.reshape(-1, size), np.asarray(split.targets)[:, size - 1 :].ravel()


def _errors(data: TaskData, size: int, key: Key) -> float:
    """Return the share of wrong answers on validation of a table of windows of up to `size` steps.

    The longest window that training has decides.
    """
    tables: dict[int, dict[bytes, int]] = {}
    for length in range(1, size + 1):
        windows, targets = _windows(data.train, length)
        counts: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
        for seen, target in zip(map(bytes, key(windows)), targets.tolist(), strict=True):
            counts[seen][target] += 1
        tables[length] = {seen: counter.most_common(1)[0][0] for seen, counter in counts.items()}
    windows, targets = _windows(data.validation, size)
    answers = np.full(len(windows), -1)
    for length, table in tables.items():
        known = [table.get(bytes(seen), -1) for seen in key(windows[:, -length:])]
        answers = np.where(np.array(known) >= 0, known, answers)
    return float(np.mean(answers != targets))


def _constant_errors(data: TaskData) -> float:
    best = np.bincount(np.asarray(data.train.targets).ravel()).argmax()
    return float(np.mean(np.asarray(data.validation.targets) != best))


@pytest.mark.slow
def test_the_bag_of_a_text_is_worth_too_much_and_too_little_for_a_promise(text: TaskData) -> None:
    """A bag of characters makes less than half the errors of a constant, and more than their order does.

    So the order matters, and yet `order: true` would promise too much; so would "no memory".
    """
    constant = _constant_errors(text)
    last, bag, order = (
        _errors(text, size, key) for size, key in ((1, _in_order), (5, _in_a_bag), (5, _in_order))
    )
    assert constant > last > constant / 2
    assert bag < 0.95 * constant / 2
    assert order < 0.95 * bag


@pytest.mark.slow
def test_equal_bags_of_a_text_have_different_answers(text: TaskData) -> None:
    """Steps that may be the first five of a segment: the bag of the whole sequence does not decide."""
    windows, targets = _windows(text.train, 5)
    answers: defaultdict[bytes, set[int]] = defaultdict(set)
    orders: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for seen, window, target in zip(_in_a_bag(windows), windows, targets.tolist(), strict=True):
        answers[bytes(seen)].add(target)
        orders[bytes(seen)].add(bytes(window))
    assert any(len(answers[seen]) > 1 and len(orders[seen]) > 1 for seen in answers)


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cifar_subset(tmp_path_factory.mktemp("cifar"))


@pytest.mark.slow
@pytest.mark.parametrize("colour", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_pixels_in_a_bag_say_less_than_pixels_in_their_places(cifar: Path, colour: bool) -> None:
    """One linear classifier errs more with the pixels sorted by brightness, and more still with the last one.

    Both controls would keep the rule of an order that matters: they make over half the errors of a constant.
    """
    data = TASKS["image"].load({"colour": colour}, cifar)
    constant = 1 - data.chance["validation"]
    place, bag, last = (_linear_errors(data, known) for known in (_cells, _bag_of_pixels, _last_pixel))
    assert constant / 2 < place < 0.95 * bag
    assert constant / 2 < bag < 0.95 * last
    assert last > 0.9 * constant


def _pixels(split: Split) -> np.ndarray:
    return np.asarray(split.inputs, np.float64) / 255


def _cells(split: Split) -> np.ndarray:
    """Return the means of 8 x 8 cells, (n, 64 F)."""
    pixels = _pixels(split)
    return pixels.reshape(len(pixels), 8, 4, 8, 4, -1).mean(axis=(2, 4)).reshape(len(pixels), -1)


def _bag_of_pixels(split: Split) -> np.ndarray:
    """Return the means of 64 groups of pixels from dark to bright, (n, 64 F)."""
    pixels = _pixels(split)
    order = np.argsort(pixels.sum(axis=2), axis=1)
    ranked = np.take_along_axis(pixels, order[:, :, None], axis=1)
    return ranked.reshape(len(pixels), 64, 16, -1).mean(axis=2).reshape(len(pixels), -1)


def _last_pixel(split: Split) -> np.ndarray:
    return _pixels(split)[:, -1]


def _linear_errors(data: TaskData, known: Callable[[Split], np.ndarray]) -> float:
    """Return the errors on validation and test of a linear classifier of what a control knows."""
    learned = RidgeClassifier(alpha=10.0).fit(known(data.train), data.train.targets)
    held_out = data.validation, data.test
    wrong = [learned.predict(known(split)) != split.targets for split in held_out]
    return float(np.mean(np.concatenate(wrong)))
