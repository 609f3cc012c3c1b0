"""Schedulers by name, every default written out. Their clock is the step; shares are shares of all steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.config.sections import Number, Pair, Section, Whole, Word, setting


@dataclass(frozen=True)
class Scheduler:
    """Which trials are stopped early: a name of `SCHEDULERS` and all of its options."""

    name: str
    options: Mapping[str, Any]


def _grace() -> Any:
    return setting("Share of the steps before the first stop.", 0.1, 0.1, gt=0, le=1)


def _reduction(default: float) -> Any:
    return setting("One in this many goes on at each rung.", default, default, gt=1, le=100)


class NoOptions(Section):
    """Every trial runs to its end: nothing to set."""


class AshaOptions(Section):
    """Asynchronous successive halving."""

    reduction: Number = _reduction(4.0)
    grace: Number = _grace()


class HyperbandOptions(Section):
    """Asynchronous Hyperband: successive halving with several first rungs."""

    reduction: Number = _reduction(3.0)
    grace: Number = _grace()
    brackets: Whole = setting("Different first rungs.", 3, 3, ge=1, le=20)


class MedianOptions(Section):
    """Stop what is below the median of the others."""

    grace: Number = _grace()
    trials: Whole = setting("Trials to compare with before anything stops.", 3, 3, ge=1, le=10_000)


class PbtOptions(Section):
    """Population based training: the worst go on from the best ones' checkpoints, with other values."""

    mutations: list[Word] = setting(
        "Searched hyperparameters that change.", ["learning_rate"], min_length=1, max_length=20
    )
    period: Number = setting("Share of the steps between two exploits.", 0.1, 0.1, gt=0, lt=1)
    quantile: Number = setting("Share that is replaced, and that is copied.", 0.25, 0.25, gt=0, le=0.5)
    resample: Number = setting("Chance of a fresh draw instead of a step.", 0.25, 0.25, ge=0, le=1)
    factors: Pair = setting("What a step multiplies by.", [0.8, 1.2], (0.8, 1.2))


SCHEDULERS: dict[str, type[Section]] = {
    "asha": AshaOptions,
    "hyperband": HyperbandOptions,
    "median": MedianOptions,
    "none": NoOptions,
    "pbt": PbtOptions,
}
