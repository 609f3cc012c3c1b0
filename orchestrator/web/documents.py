"""The documents that the API returns, made from rows of the ledger and from logs."""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from orchestrator.ledger.sweeps.records import CurvePoint, ReportRecord, TrialRecord, by_trial
from orchestrator.ledger.sweeps.selection import order
from orchestrator.web.paging import Order, page
from orchestrator.web.problems import NotFound

Item = TypeVar("Item")

MOST_LOG_BYTES = 262_144
"""Most bytes of a log in one answer."""

TRIAL_KEYS: Mapping[str, Callable[[TrialRecord], Any]] = {
    "number": lambda trial: trial.number,
    "state": lambda trial: trial.state,
    "value": lambda trial: trial.value,
    "step": lambda trial: trial.step,
    "attempts": lambda trial: trial.attempts,
    "created_at": lambda trial: trial.created_at,
    "finished_at": lambda trial: trial.finished_at,
}
"""What trials can be sorted by."""

_TRIAL_FIELDS = ("key", "role", "cause", "total_steps", "params", "best_step", *TRIAL_KEYS)


def trial(record: TrialRecord) -> dict[str, Any]:
    """Return one trial of a table."""
    return {name: getattr(record, name) for name in _TRIAL_FIELDS}


def trial_page(
    trials: Sequence[TrialRecord],
    sort: str,
    *,
    descending: bool,
    offset: int,
    limit: int,
    after: str | None = None,
) -> dict[str, Any]:
    """Return one page of a table of trials; trials without the value that it is sorted by come last."""
    order = Order(f"trials {sort}", TRIAL_KEYS[sort], _identity, descending)
    rows, following = page(trials, order, after=after, offset=offset, limit=limit)
    return {
        "total": len(trials),
        "offset": offset,
        "next": following,
        "trials": [trial(entry) for entry in rows],
    }


def _identity(trial: TrialRecord) -> str:
    """Return what orders trials with equal values: the search first, then the number."""
    return f"{trial.role != 'search':d}{trial.number:012}"


def report(record: ReportRecord) -> dict[str, Any]:
    """Return one report."""
    return {"trial": record.trial_key, "step": record.step, "at": record.at, "metrics": record.metrics}


def curves(
    points: Sequence[CurvePoint],
    trials: Sequence[TrialRecord],
    metric: str,
    *,
    maximize: bool,
    most_trials: int,
    most_points: int,
) -> dict[str, Any]:
    """Return the learning curves of the running and of the best trials, each with a limited number of points.

    Args:
        points: of all trials, by trial and step.
        trials: of the sweep.
        metric: of the curves.
        maximize: whether a larger value is better.
        most_trials: number of curves; running trials come first, then the best.
        most_points: of one curve.
    """
    by_key = by_trial(point for point in points if metric in point.metrics)
    shown = sorted(
        (entry for entry in trials if entry.key in by_key), key=lambda entry: _rank(entry, maximize)
    )
    chosen = [
        {
            "trial": entry.key,
            "number": entry.number,
            "state": entry.state,
            "points": [(at.step, at.metrics[metric]) for at in thinned(by_key[entry.key], most_points)],
        }
        for entry in shown[:most_trials]
    ]
    rest = [by_key[entry.key] for entry in shown[most_trials:]]
    return {
        "metric": metric,
        "total": len(shown),
        "curves": chosen,
        "band": {"trials": len(rest), "points": thinned(band(rest, metric), most_points)},
    }


def band(curves: Sequence[Sequence[CurvePoint]], metric: str) -> list[tuple[int, float, float, float]]:
    """Return step, minimum, median and maximum of curves at every step; only finite values count.

    Args:
        curves: of trials.
        metric: of the curves.
    """
    values: dict[int, list[float]] = {}
    for points in curves:
        for point in points:
            if math.isfinite(value := point.metrics[metric]):
                values.setdefault(point.step, []).append(value)
    return [(step, min(row), median(row), max(row)) for step, row in sorted(values.items())]


def _rank(trial: TrialRecord, maximize: bool) -> tuple[float, ...]:
    if trial.state == "RUNNING":
        return (0.0, float(trial.number))
    if trial.value is None:
        return (2.0, float(trial.number))
    return (1.0, *order(trial.value, trial.number, maximize=maximize))


def thinned(points: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` points, evenly spaced by their index; the first and the last are among them."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(index * last / (most - 1))] for index in range(most)]


def log_range(file: Path, start: int | None, length: int) -> dict[str, Any]:
    """Return a part of a log.

    Args:
        file: the log.
        start: offset in bytes; None for the last `length` bytes.
        length: bytes to read.

    Raises:
        NotFound: there is no log yet.
    """
    try:
        with file.open("rb") as log:
            size = log.seek(0, 2)
            begin = max(0, size - length) if start is None else min(start, size)
            log.seek(begin)
            content = log.read(length)
        if start is None and begin:
            # No part begins or ends within a character, if it can be helped.
            begin += next((at for at, byte in enumerate(content[:4]) if byte & 0xC0 != 0x80), 0)
            content = content[begin - (size - length) :]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(content, final=len(content) < 4 or begin + len(content) >= size)
        content = content[: len(content) - len(decoder.getstate()[0])]
    except FileNotFoundError:
        remedy = "Logs of trials on other machines are in their folders."
        raise NotFound("log", "must exist", "none on this machine", remedy) from None
    end = begin + len(content)
    return {"start": begin, "end": end, "size": size, "text": text}
