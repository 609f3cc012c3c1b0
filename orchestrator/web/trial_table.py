"""The table of a sweep's trials: ranks, columns of hyperparameters and metrics, filters and sort orders.

A filter is a text of comparisons such as `learning_rate < 1e-3 and state = pruned or val/loss <= 0.2`, in
which `and` (or a comma) binds more tightly than `or`. A name is that of a field of the table, of a
hyperparameter or of a metric, in this order; `params.step` and `metrics.step` are unambiguous.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.errors import BadInput
from orchestrator.ledger.sweeps.records import TrialRecord
from orchestrator.ledger.sweeps.selection import order
from orchestrator.ledger.sweeps.standing import ValueSoFar
from orchestrator.placeholders import plain
from orchestrator.web.paging import SortOrder

Scale = Literal["linear", "log", "choice"]
Cell = Callable[["TrialEntry"], Any]

FIELDS = ("rank", "number", "favourite", "state", "value", "step", "attempts", "created_at", "finished_at")
"""Columns that every sweep has; `value` includes the best report so far of an unfinished trial."""

MOST_COMPARISONS = 20
"""Largest number of comparisons of a filter."""

_LOGARITHMIC = {"log_uniform", "log_int", "log_normal", "power_of_two"}
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
_COMPARISON = re.compile(
    r"""\s*(?P<name>[^\s<>=!"',]+)\s*(?P<sign><=|>=|==|!=|=|<|>)\s*(?P<value>"[^"]*"|'[^']*'|[^\s,<>=!"']+)\s*"""
)
_JOINT = re.compile(r"(?P<or>or\s)|and\s|,")


@dataclass(frozen=True)
class TrialColumn:
    """Column of the table.

    Attributes:
        name: Name of the hyperparameter or metric.
        kind: Whether it is a hyperparameter or a metric.
        scale: Scale of the hyperparameter in the search-space file; linear for a metric.
    """

    name: str
    kind: Literal["parameter", "metric"]
    scale: Scale


@dataclass(frozen=True)
class TrialEntry:
    """Trial with what the table adds to its record.

    Attributes:
        trial: Record of the trial.
        rank: Place among the search trials with a value, from 1; None without one, and if it has failed.
        value: Its value, or the best report so far of an unfinished trial; None without one.
        best_step: Step of that value, or None.
        metrics: Metrics at that step, if they were read.
        favourite: Whether a user has marked it.
    """

    trial: TrialRecord
    rank: int | None
    value: float | None
    best_step: int | None
    metrics: Mapping[str, float]
    favourite: bool = False


@dataclass(frozen=True)
class TrialTable:
    """Rows of a sweep in any order, with the columns of its hyperparameters and metrics."""

    rows: Sequence[TrialEntry]
    columns: Sequence[TrialColumn]

    def matching(self, where: str = "", states: Iterable[str] = ()) -> list[TrialEntry]:
        """Return the rows that a filter and a choice of states leave.

        Args:
            where: Filter; all rows match an empty one.
            states: States of the trials; all states if empty.

        Raises:
            BadInput: The filter cannot be read.
        """
        alternatives, wanted = self._alternatives(where), set(states)
        return [
            row
            for row in self.rows
            if (not wanted or row.trial.state in wanted)
            and any(all(test(row) for test in tests) for tests in alternatives)
        ]

    def sorted_by(self, sort: str, *, descending: bool) -> SortOrder[TrialEntry]:
        """Return a sort order of the rows.

        Args:
            sort: Name of a column.
            descending: Whether larger values come first.

        Raises:
            BadInput: The table has no such column.
        """
        cell = self._cell("sort", sort)
        is_mixed = any(isinstance(cell(row), str) for row in self.rows)

        def value(row: TrialEntry) -> Any:
            found = cell(row)
            return found if found is None or not is_mixed else str(plain(found))

        return SortOrder[TrialEntry](f"trials {sort}", value, _identity, descending)

    def reads_metrics(self, where: str, sort: str) -> bool:
        """Return True if a filter or a sort order needs the metrics of all trials."""
        named = {sort, *(match["name"] for match in _COMPARISON.finditer(where))}
        fixed = {*FIELDS, *(column.name for column in self.columns if column.kind == "parameter")}
        return any(name not in fixed and not name.startswith("params.") for name in named)

    def _alternatives(self, where: str) -> list[list[Callable[[TrialEntry], bool]]]:
        alternatives: list[list[Callable[[TrialEntry], bool]]] = [[]]
        position, text = 0, where.strip()
        for _ in range(MOST_COMPARISONS):
            if position == len(text):
                return alternatives
            found = _COMPARISON.match(text, position)
            if found is None:
                break
            alternatives[-1].append(self._test(found["name"], found["sign"], found["value"]))
            position = found.end()
            if position == len(text):
                return alternatives
            joint = _JOINT.match(text, position)
            if joint is None or joint.end() == len(text):
                break
            if joint["or"]:
                alternatives.append([])
            position = joint.end()
        must = f"must be at most {MOST_COMPARISONS} comparisons, joined by `and` or `or`"
        raise BadInput("where", must, repr(where), "For example `learning_rate < 1e-3 and state = pruned`.")

    def _test(self, name: str, sign: str, text: str) -> Callable[[TrialEntry], bool]:
        cell, compare = self._cell("where", name), _OPERATORS[sign]
        wanted = text.strip("\"'")
        number = _number(wanted)

        def test(row: TrialEntry) -> bool:
            value = cell(row)
            if value is None:
                return False
            if number is not None and isinstance(value, int | float) and not isinstance(value, bool):
                return compare(value, number)
            return sign in {"=", "==", "!="} and compare(_word(value), wanted.lower())

        return test

    def _cell(self, where: str, name: str) -> Cell:
        """Return the function that reads a column of a row."""
        prefix, _, rest = name.partition(".")
        names = {kind: [each.name for each in self.columns if each.kind == kind] for kind in _KINDS}
        if name in FIELDS:
            return _FIELD_CELLS.get(name) or (lambda row: getattr(row.trial, name))
        if (prefix == "params" and rest) or name in names["parameter"]:
            parameter = name if name in names["parameter"] else rest
            return lambda row: row.trial.params.get(parameter)
        if (prefix == "metrics" and rest) or name in names["metric"]:
            metric = name if name in names["metric"] else rest
            return lambda row: _finite(row.metrics.get(metric))
        known = ", ".join([*FIELDS, *names["parameter"], *names["metric"]])
        raise BadInput(where, "must name a column of the trials", repr(name), f"The columns are {known}.")


_KINDS = ("parameter", "metric")
_FIELD_CELLS: Mapping[str, Cell] = {
    "rank": lambda row: row.rank,
    "value": lambda row: row.value,
    "favourite": lambda row: row.favourite,
}


def columns_of(
    document: Mapping[str, Any], trials: Sequence[TrialRecord], metrics: Iterable[str]
) -> list[TrialColumn]:
    """Return the columns of a sweep: hyperparameters in the order of its file, then metrics.

    Args:
        document: Document of the sweep.
        trials: Trials of the sweep; hyperparameters that only they have come last.
        metrics: Names of the metrics that have a column.
    """
    search: Mapping[str, Any] = document.get("search") or {}
    names = dict.fromkeys([*search, *(name for trial in trials for name in trial.params)])
    parameters = [
        TrialColumn(name, "parameter", _scale(search.get(name), [trial.params.get(name) for trial in trials]))
        for name in names
    ]
    return [*parameters, *(TrialColumn(name, "metric", "linear") for name in metrics)]


def rows_of(
    trials: Sequence[TrialRecord],
    values: Mapping[str, ValueSoFar],
    *,
    maximize: bool,
    metrics: Mapping[str, Mapping[str, float]],
    favourites: Collection[str] = (),
) -> list[TrialEntry]:
    """Return the rows of trials with their ranks.

    Args:
        trials: Trials of one sweep.
        values: Values so far by trial key, from `standing.values_so_far`.
        maximize: Whether a larger value is better.
        metrics: Metrics at the best step by trial key, if they were read.
        favourites: Keys of the trials that users have marked.
    """
    numbers = {trial.key: trial.number for trial in trials}

    def place(key: str) -> tuple[float, float, int]:
        value, _, violation = values[key]
        return order(value, numbers[key], maximize=maximize, violation=violation)

    ranks = {key: rank for rank, key in enumerate(sorted(values, key=place), start=1)}
    return [
        TrialEntry(
            trial,
            ranks.get(trial.key),
            *(values[trial.key][:2] if trial.key in values else (trial.value, trial.best_step)),
            metrics.get(trial.key, {}),
            trial.key in favourites,
        )
        for trial in trials
    ]


def _scale(spec: Any, values: Sequence[Any]) -> Scale:
    kinds = set(spec) if isinstance(spec, Mapping) else set()
    if kinds & _LOGARITHMIC:
        return "log"
    numbers = [
        isinstance(value, int | float) and not isinstance(value, bool)
        for value in values
        if value is not None
    ]
    return "linear" if all(numbers) and (numbers or "choice" not in kinds) else "choice"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _word(value: Any) -> str:
    return str(plain(value)).lower()


def _identity(row: TrialEntry) -> str:
    return f"{row.trial.role != 'search':d}{row.trial.number:012}"
