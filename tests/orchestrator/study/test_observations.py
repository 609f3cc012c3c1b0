"""What a sampler is shown of a long past."""

from __future__ import annotations

import random

from orchestrator.study.observations import BEST, Window

LIMIT = 250


def _told(order: list[int], count: int = 1000) -> Window:
    window = Window(LIMIT)
    for number in range(count):
        window.begin(number)
    for number in order:
        window.settle(number, (0.0, float((number * 37) % 1009)))
    return window


def test_a_short_past_is_shown_whole() -> None:
    """Up to the limit, and without one, nothing is left out."""
    assert _told([], LIMIT).shown() is None
    unlimited = Window(None)
    for number in range(1000):
        unlimited.begin(number)
    assert unlimited.shown() is None


def test_the_best_the_latest_and_the_unfinished_are_shown() -> None:
    """Those and no others, in order."""
    shown = _told([number for number in range(1000) if number != 5]).shown()
    assert shown is not None
    best = sorted((n for n in range(1000) if n != 5), key=lambda number: (number * 37) % 1009)[:BEST]
    assert list(shown) == sorted({*best, 5, *range(1000 - (LIMIT - BEST), 1000)})


def test_the_order_of_the_ends_does_not_matter() -> None:
    """A rebuilt study, told by number, shows what one shows that was told as trials ended."""
    order = list(range(1000))
    shuffled = random.Random(0).sample(order, len(order))
    assert _told(order).shown() == _told(shuffled).shown()


def test_failures_are_not_among_the_best() -> None:
    """They are finished, and there is nothing to learn from them."""
    window = _told([])
    for number in range(1000):
        window.settle(number, None)
    assert list(window.shown() or ()) == list(range(1000 - (LIMIT - BEST), 1000))


def test_an_unbeaten_compromise_stays_in_sight() -> None:
    """With several objectives a trial that no other beats in all of them is shown, if it leads in none."""
    window = _told([])
    for number in range(1000):
        objectives = (float(number), float(-number)) if number != 3 else (2.5, -900.0)
        window.settle(number, (0.0, objectives[0] + 5000 * (number == 3)), objectives)
    assert 3 in (window.shown() or ())
