"""The searched hyperparameters as axes: which values they may have, and where a value lies on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from orchestrator.report import words
from orchestrator.report.history import History

Kind = Literal["linear", "log", "category"]


@dataclass(frozen=True)
class Axis:
    """One hyperparameter.

    Attributes:
        name: as the search-space file names it.
        kind: how its values are spread.
        low: the end of a range that lies at 0.
        high: the end that lies at 1.
        choices: the values of a category, in the file's order.
    """

    name: str
    kind: Kind
    low: float = 0.0
    high: float = 1.0
    choices: tuple[Any, ...] = ()

    def place(self, value: Any) -> float:
        """Return where a value lies, from 0 to 1."""
        if self.kind == "category":
            return (self.choices.index(value) + 0.5) / len(self.choices)
        low, high, here = (self._stretched(each) for each in (self.low, self.high, value))
        return 0.5 if high == low else (here - low) / (high - low)

    def value(self, place: float) -> float:
        """Return the value of a range at a place from 0 to 1."""
        low, high = self._stretched(self.low), self._stretched(self.high)
        here = low + place * (high - low)
        return math.exp(here) if self.kind == "log" else here

    def ticks(self) -> list[tuple[float, str]]:
        """Return places and texts that describe the axis."""
        if self.kind == "category":
            return [(self.place(choice), words.setting(choice)) for choice in self.choices]
        return [(place, words.setting(self.value(place))) for place in (0.0, 0.5, 1.0)]

    def _stretched(self, value: float) -> float:
        return math.log(value) if self.kind == "log" else float(value)


def axes(history: History) -> list[Axis]:
    """Return the searched hyperparameters of a sweep, in the order of its file."""
    return [_axis(name, entry) for name, entry in history.sweep.document["search"].items()]


def _axis(name: str, entry: Mapping[str, Any]) -> Axis:
    if "choice" in entry:
        return Axis(name, "category", choices=tuple(entry["choice"]))
    kind = next(kind for kind in ("uniform", "log_uniform", "int", "log_int") if kind in entry)
    low, high = entry[kind]
    return Axis(name, "log" if kind.startswith("log_") else "linear", low, high)


@dataclass(frozen=True)
class Valued:
    """Trials with a value, as arrays.

    Attributes:
        numbers: of the trials, shape `(n,)`.
        values: best validation values, shape `(n,)`.
        places: of each hyperparameter on its axis, shape `(n,)`; NaN where a trial has none.
        complete: whether a trial ran to its end, shape `(n,)`.
    """

    numbers: np.ndarray
    values: np.ndarray
    places: Mapping[str, np.ndarray]
    complete: np.ndarray


def valued(history: History, over: Sequence[Axis]) -> Valued:
    """Return the trials of the search that have a value: the complete and the pruned ones."""
    trials = [trial for trial in history.search() if trial.value is not None]
    return Valued(
        numbers=np.array([trial.number for trial in trials], dtype=int),
        values=np.array([trial.value for trial in trials], dtype=float),
        places={
            axis.name: np.array(
                [axis.place(t.params[axis.name]) if axis.name in t.params else math.nan for t in trials],
                dtype=float,
            )
            for axis in over
        },
        complete=np.array([trial.state == "COMPLETE" for trial in trials], dtype=bool),
    )
