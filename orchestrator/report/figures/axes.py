"""The searched hyperparameters as axes: the values they may have, and the position of a value on them."""

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
        name: its name in the search-space file.
        kind: scale of its values.
        low: end of a range that is at position 0.
        high: end of a range that is at position 1.
        choices: values of a category, in the order of the file.
    """

    name: str
    kind: Kind
    low: float = 0.0
    high: float = 1.0
    choices: tuple[Any, ...] = ()

    def position(self, value: Any) -> float:
        """Return the position of a value, from 0 to 1."""
        if self.kind == "category":
            return (self.choices.index(value) + 0.5) / len(self.choices)
        low, high, scaled = map(self._scaled, (self.low, self.high, value))
        return 0.5 if high == low else (scaled - low) / (high - low)

    def value(self, position: float) -> float:
        """Return the value of a range at a position from 0 to 1."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        scaled = low + position * (high - low)
        return math.exp(scaled) if self.kind == "log" else scaled

    def ticks(self) -> list[tuple[float, str]]:
        """Return the positions and texts of the axis's ticks."""
        if self.kind == "category":
            return [(self.position(choice), words.setting(choice)) for choice in self.choices]
        return [(position, words.setting(self.value(position))) for position in (0.0, 0.5, 1.0)]

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.kind == "log" else float(value)


def axes(history: History) -> list[Axis]:
    """Return the axes of a sweep's searched hyperparameters, in the order of the file."""
    return [_axis(name, entry) for name, entry in history.sweep.document["search"].items()]


def _axis(name: str, entry: Mapping[str, Any]) -> Axis:
    if "choice" in entry:
        return Axis(name, "category", choices=tuple(entry["choice"]))
    kind = next(kind for kind in ("uniform", "log_uniform", "int", "log_int") if kind in entry)
    low, high = entry[kind]
    return Axis(name, "log" if kind.startswith("log_") else "linear", low, high)


@dataclass(frozen=True)
class TrialValues:
    """The trials that have a value, as arrays.

    Attributes:
        numbers: of the trials, shape `(n,)`.
        values: best validation values, shape `(n,)`.
        positions: by hyperparameter, on its axis, shape `(n,)`; NaN for a trial without that hyperparameter.
        complete: whether a trial ran to its end, shape `(n,)`.
    """

    numbers: np.ndarray
    values: np.ndarray
    positions: Mapping[str, np.ndarray]
    complete: np.ndarray


def valued(history: History, over: Sequence[Axis]) -> TrialValues:
    """Return the trials of the search that have a value: the complete ones and the pruned ones."""
    trials = [trial for trial in history.search() if trial.value is not None]
    return TrialValues(
        numbers=np.array([trial.number for trial in trials], dtype=int),
        values=np.array([trial.value for trial in trials], dtype=float),
        positions={
            axis.name: np.array(
                [axis.position(t.params[axis.name]) if axis.name in t.params else math.nan for t in trials],
                dtype=float,
            )
            for axis in over
        },
        complete=np.array([trial.state == "COMPLETE" for trial in trials], dtype=bool),
    )
