"""The documents that the API returns, made from rows of the ledger and from logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.api.status import DetailedStatus, Status
from orchestrator.ledger.records import CurvePoint, TrialRecord, by_trial
from orchestrator.ledger.selection import order
from orchestrator.ledger.submissions import Submission
from orchestrator.web.problems import NotFound

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


def overview(status: Status, owner: str | None) -> dict[str, Any]:
    """Return one sweep of a list."""
    driver = str(status.driver) if status.driver else None
    return {**status.document(), "driver": driver, "owner": owner}


def sweep(status: DetailedStatus, submission: Submission | None, text: str) -> dict[str, Any]:
    """Return one sweep with its progress, its failures and the text of its file."""
    return {
        **overview(status, submission.owner if submission else None),
        "metric": status.metric,
        "progress": asdict(status.progress),
        "failures": dict(status.failures),
        "text": text,
    }


def trial(record: TrialRecord) -> dict[str, Any]:
    """Return one trial of a table."""
    names = ("key", "role", "cause", "total_steps", "params", *TRIAL_KEYS)
    return {name: getattr(record, name) for name in names}


def trial_page(
    trials: Sequence[TrialRecord], sort: str, *, descending: bool, offset: int, limit: int
) -> dict[str, Any]:
    """Return one page of a table of trials; trials without the value that it is sorted by come last."""
    key = TRIAL_KEYS[sort]
    with_value = sorted((entry for entry in trials if key(entry) is not None), key=key, reverse=descending)
    ordered = [*with_value, *(entry for entry in trials if key(entry) is None)]
    rows = [trial(entry) for entry in ordered[offset : offset + limit]]
    return {"total": len(trials), "offset": offset, "trials": rows}


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
    return {"metric": metric, "total": len(shown), "curves": chosen}


def _rank(trial: TrialRecord, maximize: bool) -> tuple[float, ...]:
    if trial.state == "RUNNING":
        return (0.0, float(trial.number))
    if trial.value is None:
        return (2.0, float(trial.number))
    return (1.0, *order(trial.value, trial.number, maximize=maximize))


def thinned(points: Sequence[CurvePoint], most: int) -> list[CurvePoint]:
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
    except FileNotFoundError:
        remedy = "Logs of trials on other machines are in their folders."
        raise NotFound("log", "must exist", "none on this machine", remedy) from None
    end = begin + len(content)
    return {"start": begin, "end": end, "size": size, "text": content.decode(errors="replace")}
