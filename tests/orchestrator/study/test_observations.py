"""The window that limits how many earlier trials a sampler sees."""

from __future__ import annotations

import random

from orchestrator.study.observations import BEST, Window

LIMIT = 250


def _settled(order: list[int], count: int = 1000) -> Window:
    window = Window(LIMIT)
    for number in range(count):
        window.begin(number)
    for number in order:
        window.settle(number, (0.0, float((number * 37) % 1009)))
    return window


def test_a_short_past_is_shown_completely() -> None:
    """Up to the limit, and without a limit, the window holds every trial."""
    assert _settled([], LIMIT).shown() is None
    unlimited = Window(None)
    for number in range(1000):
        unlimited.begin(number)
    assert unlimited.shown() is None


def test_the_best_the_latest_and_the_unfinished_are_shown() -> None:
    """The window holds the best, the latest and the unfinished trials and no others, in order."""
    shown = _settled([number for number in range(1000) if number != 5]).shown()
    assert shown is not None
    best = sorted((n for n in range(1000) if n != 5), key=lambda number: (number * 37) % 1009)[:BEST]
    assert list(shown) == sorted({*best, 5, *range(1000 - (LIMIT - BEST), 1000)})


def test_the_order_of_the_ends_is_irrelevant() -> None:
    """A rebuilt study, which learns by number, has the window of one that learned as trials ended."""
    order = list(range(1000))
    shuffled = random.Random(0).sample(order, len(order))
    assert _settled(order).shown() == _settled(shuffled).shown()


def test_failures_are_not_among_the_best() -> None:
    """A sampler learns nothing from a failed trial."""
    window = _settled([])
    for number in range(1000):
        window.settle(number, None)
    assert list(window.shown() or ()) == list(range(1000 - (LIMIT - BEST), 1000))


def test_a_trial_that_is_not_dominated_stays_in_the_window() -> None:
    """With several objectives a trial on the Pareto front is shown, even if it is the best in none."""
    window = _settled([])
    for number in range(1000):
        objectives = (float(number), float(-number)) if number != 3 else (2.5, -900.0)
        window.settle(number, (0.0, objectives[0] + 5000 * (number == 3)), objectives)
    assert 3 in (window.shown() or ())
