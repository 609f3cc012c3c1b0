"""The engine chooses the number of slots that it has measured to be the fastest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainables.toy import toy_data, toy_trial
from trainables.engine import Engine, choose_slots, size
from trainables.engine.size import steps_per_second
from trainables.errors import Refusal

DIVERGING = toy_trial(learning_rate=1e30, recurrent_learning_rate=1e30)


@pytest.mark.parametrize(
    ("rates", "chosen", "tried"),
    [
        ([10.0, 9.0, 50.0], 1, 2),
        ([10.0, 10.2, 50.0], 2, 2),
        ([10.0, 19.0, 35.0, 36.0, 99.0], 8, 4),
        ([10.0, 19.0, 35.0], 4, 3),
    ],
)
def test_stops_when_doubling_gains_too_little(
    monkeypatch: pytest.MonkeyPatch, rates: list[float], chosen: int, tried: int
) -> None:
    """The number is doubled while that gains enough; the fastest measured one is chosen."""
    measured: list[int] = []

    def measure(*_: object) -> Iterator[tuple[int, float]]:
        for power, rate in enumerate(rates):
            measured.append(2**power)
            yield 2**power, rate

    monkeypatch.setattr(size, "_measured", measure)
    choice = choose_slots(toy_trial(), toy_data())
    assert choice.slots == chosen
    assert list(choice.rates) == measured == [2**power for power in range(tried)]


@pytest.mark.slow
def test_measures_a_real_engine(single: Engine) -> None:
    """The rate, in steps of all slots per second, is positive for one slot."""
    choice = choose_slots(toy_trial(), toy_data(), most=1, seconds=0.05)
    assert choice.slots == 1
    assert choice.rates[1] > 0
    single.admit(0, toy_trial())
    assert steps_per_second(single, 1, 0.05) > 0
    single.evict(0)


@pytest.mark.slow
def test_learning_rates_at_which_a_trial_diverges_are_no_obstacle() -> None:
    """A search may begin at any rate, and the speed of a step does not depend on it."""
    assert choose_slots(DIVERGING, toy_data(), most=1, seconds=0.05).rates[1] > 0


def test_a_trial_that_diverges_has_no_speed(single: Engine) -> None:
    """It takes no further steps, so that no measurement of it would ever be long enough."""
    single.admit(0, DIVERGING)
    with pytest.raises(Refusal, match="must have a finite loss for its speed to be measured"):
        steps_per_second(single, 1, 0.05)
    single.evict(0)
