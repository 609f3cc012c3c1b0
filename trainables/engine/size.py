"""The best number of slots of an engine, measured on the device.

On a GPU, one small model leaves most of the device idle, so further slots are nearly free until it is full.
On a CPU, one model fills a core, so an engine has one slot and each core an engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax

from trainables.engine.engine import Engine
from trainables.engine.slots import out_of_memory
from trainables.errors import Refusal
from trainables.trial import ProgramSettings, TrialSettings

WORTH = 1.05
"""Least speedup by twice the slots for which larger numbers are tried; a smaller one is within the noise."""


@dataclass(frozen=True)
class Size:
    """The measured size of an engine.

    Attributes:
        slots: Number of slots K that trains most steps a second, all slots together.
        rates: Steps a second of all slots together, by number of slots.
    """

    slots: int
    rates: Mapping[int, float]


def choose_slots(
    settings: TrialSettings | ProgramSettings, data: Any, *, most: int = 32, seconds: float = 1.0
) -> Size:
    """Measure 1, 2, 4, ... slots until more of them are not worth it or do not fit.

    Args:
        settings: Settings of any trial of the static choice.
        data: Data of its task.
        most: Most slots to try.
        seconds: Seconds to measure each number for, after compilation.
    """
    rates: dict[int, float] = {}
    for slots, rate in _measured(settings, data, most, seconds):
        worth = rate > WORTH * max(rates.values(), default=0.0)
        rates[slots] = rate
        if not worth:
            break
    return Size(slots=max(rates, key=lambda slots: rates[slots]), rates=rates)


def _measured(
    settings: TrialSettings | ProgramSettings, data: Any, most: int, seconds: float
) -> Iterator[tuple[int, float]]:
    """Yield numbers of slots that fit, and their rates."""
    if isinstance(settings, TrialSettings):
        # Speed does not depend on the rates; at 0 no trial diverges, which would end its steps early.
        still = replace(settings.training, learning_rate=0.0, recurrent_learning_rate=0.0)
        settings = replace(settings, training=still)
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
    """Return the steps a second of the first slots of an engine together, without compilation.

    Args:
        engine: Engine with trials in these slots.
        slots: Number of slots.
        seconds: Time to train.

    Raises:
        Refusal: The loss or the gradient of a trial is not finite, so that it takes no further steps.
    """
    _seconds(engine, slots, 2)  # A first call is slower than the rest.
    steps = 1
    while (taken := _seconds(engine, slots, steps)) < seconds:
        steps = max(steps + 1, int(1.2 * seconds * steps / taken))
    return slots * steps / taken


def _seconds(engine: Engine, slots: int, steps: int) -> float:
    """Return the time in seconds for the next steps of the first slots of an engine."""
    reports = engine.advance(dict.fromkeys(range(slots), steps))
    if not all(report.finite for report in reports.values()):
        must, remedy = "must have a finite loss for its speed to be measured", "Lower the learning rates."
        raise Refusal("the measured trial", must, "inf or nan", remedy)
    return reports[0].train_seconds
