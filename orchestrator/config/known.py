"""Known results: settings and values that others have measured, matched to the space of a search."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from orchestrator.config.document import Violation
from orchestrator.config.sections import KnownSection, StudySections
from orchestrator.config.space import Distribution, active
from orchestrator.config.sweep_config import KnownResults, Objective

MOST_RESULTS = 64
"""Results of one source that are kept; a sampler is shown at most a quarter of them."""

ROUNDED = 1e-6
"""Relative difference up to which a number in a table is that of a choice, such as pi/10."""

Space = Mapping[str, Distribution]


def read_known(
    file: StudySections, space: Space, objectives: Sequence[Objective]
) -> tuple[KnownResults, ...]:
    """Return the known results of a file; None for a source that was not read.

    Raises:
        Violation: Two sources have one name, or no result of a source is in the space.
    """
    known: list[KnownResults] = []
    for index, section in enumerate(file.known):
        if section.source in {each.source for each in known}:
            must = "must name each source once"
            raise Violation(("known", index, "source"), must, "Leave one out.", f"`{section.source}`")
        known.append(_read(section, index, space, objectives))
    return tuple(known)


def _read(section: KnownSection, index: int, space: Space, objectives: Sequence[Objective]) -> KnownResults:
    if section.results is None:
        return KnownResults(section.source, None, {}, section.run)
    found = matched(section.source, section.results, space, objectives)
    if not found.results:
        why = "; ".join(f"{count} {cause}" for cause, count in found.left_out.items()) or "none"
        must = "has no result in the space of the search"
        raise Violation(("known", index), must, "Compare its names with `search` and `objective`.", why)
    left_out = Counter(section.left_out) + Counter(found.left_out)
    return KnownResults(section.source, found.results, dict(sorted(left_out.items())), section.run)


def matched(
    source: str, rows: Iterable[Mapping[str, Any]], space: Space, objectives: Sequence[Objective]
) -> KnownResults:
    """Return the rows of a table that are results of a search, and the number of other rows by reason.

    The mean of rows with equal settings is one result. At most `MOST_RESULTS` are kept, spread evenly over
    the ranks of the first objective.

    Args:
        source: Name of the table.
        rows: Hyperparameters and metrics by name, as numbers or as text; other names are ignored.
        space: Space of the search.
        objectives: Objectives of the search.
    """
    lacks, groups = Counter[str](), dict[str, list[dict[str, Any]]]()
    for row in rows:
        result = _result(row, space, objectives)
        if isinstance(result, str):
            lacks[result] += 1
            continue
        setting = {name: value for name, value in result.items() if name in space}
        groups.setdefault(json.dumps(setting, sort_keys=True), []).append(result)
    metrics = [objective.metric for objective in objectives]
    results = [
        {**group[0], **{metric: fmean(each[metric] for each in group) for metric in metrics}}
        for group in groups.values()
    ]
    kept = _spread(results, metrics[0])
    if len(kept) < len(results):
        lacks[f"beyond the first {MOST_RESULTS}"] = len(results) - len(kept)
    return KnownResults(source, tuple(kept), dict(sorted(lacks.items())))


def _spread(results: Sequence[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    if len(results) <= MOST_RESULTS:
        return list(results)
    order = sorted(range(len(results)), key=lambda index: results[index][metric])
    chosen = (order[at * (len(order) - 1) // (MOST_RESULTS - 1)] for at in range(MOST_RESULTS))
    return [results[index] for index in sorted(chosen)]


def _result(row: Mapping[str, Any], space: Space, objectives: Sequence[Objective]) -> dict[str, Any] | str:
    """Return the hyperparameters and objectives in a row, or the reason why it is left out."""
    result: dict[str, Any] = {}
    for name, distribution in space.items():
        if not active(distribution, result):
            continue
        values = [each for reading in _readings(row.get(name)) for each in _held(distribution, reading)]
        if not values:
            return f"without {name}" if row.get(name) in (None, "") else f"with {name} outside its search"
        result[name] = values[0]
    for objective in objectives:
        numbers = [each for each in _readings(row.get(objective.metric)) if _is_finite(each)]
        if not numbers:
            return f"without a finite {objective.metric}"
        result[objective.metric] = float(numbers[0])
    return result


def _readings(value: Any) -> list[Any]:
    """Return the possible values of a table's cell: the value itself, and the number or word in its text."""
    if not isinstance(value, str):
        return [value]
    try:
        spelled = json.loads(value.strip().lower() if value.strip() in ("True", "False") else value)
    except ValueError:
        return [value]
    return [value, spelled]


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _held(distribution: Distribution, value: Any) -> list[Any]:
    """Return a value as the distribution draws it, or nothing if it cannot; numbers may be rounded."""
    if distribution.kind == "choice":
        is_held = distribution.holds(value)
        return [
            each for each in distribution.choices if (is_held and each == value) or _is_close(each, value)
        ][:1]
    if not distribution.holds(value):
        return []
    return [round(value) if distribution.kind in {"int", "log_int"} else float(value)]


def _is_close(one: Any, other: Any) -> bool:
    return _is_finite(one) and _is_finite(other) and math.isclose(one, other, rel_tol=ROUNDED)
