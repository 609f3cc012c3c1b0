"""How many slots an engine should have, measured on the device.

On a GPU one small model leaves most of the device idle, so slots are nearly free until it is full. On a CPU
one model fills a core and slots are served in turn: one slot wins, and there is an engine a core.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import jax

from trainables.data.task import TaskData
from trainables.engine.engine import Engine
from trainables.engine.slots import out_of_memory
from trainables.trial import TrialSettings

WORTH = 1.05
"""How many times as fast twice the slots must be to be tried further: less is within the noise."""


@dataclass(frozen=True)
class Size:
    """The measured size of an engine.

    Attributes:
        slots: the number of slots K that trains most steps a second, all slots together.
        rates: steps a second of all slots together, by number of slots tried.
    """

    slots: int
    rates: Mapping[int, float]


def choose_slots(settings: TrialSettings, data: TaskData, *, most: int = 32, seconds: float = 1.0) -> Size:
    """Measure 1, 2, 4, ... slots until more of them are not worth it or do not fit.

    Args:
        settings: any trial's of the static choice.
        data: of its task.
        most: most slots to try.
        seconds: to measure each number for, after compilation.
    """
    rates: dict[int, float] = {}
    for slots, rate in _measured(settings, data, most, seconds):
        worth = rate > WORTH * max(rates.values(), default=0.0)
        rates[slots] = rate
        if not worth:
            break
    return Size(slots=max(rates, key=lambda slots: rates[slots]), rates=rates)


def _measured(
    settings: TrialSettings, data: TaskData, most: int, seconds: float
) -> Iterator[tuple[int, float]]:
    """Yield numbers of slots that fit, and their rates."""
    engine = Engine(settings, data, slots=most)
    slots = 1
    while slots <= most:
        for slot in range(slots // 2 if slots > 1 else 0, slots):
            engine.admit(slot, replace(settings, seed=settings.seed + slot))
        try:
            rate = steps_per_second(engine, slots, seconds)
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            if slots > 1 and out_of_memory(error):
                return
            raise
        if engine.width < slots:
            return
        yield slots, rate
        slots *= 2


def steps_per_second(engine: Engine, slots: int, seconds: float) -> float:
    """Return the steps a second of an engine's first slots together, compilation apart.

    Args:
        engine: with trials in these slots.
        slots: how many.
        seconds: to train for.
    """
    engine.advance(dict.fromkeys(range(slots), 2))  # A first call is slower than the rest.
    steps = 1
    while True:
        report = engine.advance(dict.fromkeys(range(slots), steps))[0]
        if report.train_seconds >= seconds:
            return slots * steps / report.train_seconds
        steps = max(steps + 1, int(1.2 * seconds * steps / report.train_seconds))
