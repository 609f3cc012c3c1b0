"""Live view of a sweep: running trials, best values, budget, place in the queue, events, learning curves.

It reads only the ledger and imports no Ray, JAX, MLflow, Optuna or pandas.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TypeVar

from orchestrator import config
from orchestrator.api.local_trial import unshown_metrics
from orchestrator.api.priorities import queue
from orchestrator.api.status import history_of, speed_of, status
from orchestrator.api.workspace import Workspace
from orchestrator.client.answers import (
    Band,
    Budget,
    LearningCurves,
    LiveSweep,
    ReferenceValue,
    RunningTrial,
    SweepEvent,
    TrialCurve,
)
from orchestrator.client.names import one_of
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people import audit
from orchestrator.ledger.people.user_records import AuditEntry
from orchestrator.ledger.sweeps.index import known_sweeps
from orchestrator.ledger.sweeps.records import (
    AttemptOutline,
    AttemptRecord,
    CurvePoint,
    SweepRecord,
    TrialOutline,
    TrialRecord,
    by_trial,
    trial_key,
    trial_label,
)
from orchestrator.ledger.sweeps.selection import order
from orchestrator.ledger.sweeps.standing import HistoryPoint, spent
from orchestrator.report.published import is_as_published

Item = TypeVar("Item")

MOST_RUNNING = 64
"""Largest number of running trials whose reports are read."""

MOST_EVENTS = 20
"""Largest number of events, the newest ones."""

MOST_POINTS = 500
"""Number of points of a long history beside its improvements."""

_FIRST_REPORTS = 10


def live(name: str | None = None, *, root: str | Path | None = None) -> LiveSweep:
    """Return the live view of a sweep.

    Args:
        name: ID of the sweep or the beginning of it; the newest sweep if None.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The ledger does not exist, or not exactly one sweep matches.
    """
    now = status(name, root=root)
    place = next((entry for entry in queue(root=root) if entry.sweep == now.id), None)
    with Workspace.at(root).ledger() as ledger:
        record = ledger.sweep(now.id)
        asked = audit.entries(ledger, target=now.id, limit=MOST_EVENTS)
        if record is None:
            return LiveSweep(now, (), (), place, events=events((), asked))
        trials, attempts = ledger.trial_outlines(record.id), ledger.attempt_outlines(record.id)
        is_idle = now.state in ("PARKED", "QUEUED", "WAITING")
        running = () if is_idle else tuple(_running(ledger, record, trials))
        budget = _budget(record, attempts, ledger.now() if "RUNNING" in now.trials else None)
        latest = events(ledger.recent_attempts(record.id, MOST_EVENTS), asked)
        points = thinned_history(history_of(ledger, record, trials))
    ends_at = None if now.time_left is None else time.time() + now.time_left.likely
    best = tuple(point.best for point in points)
    return LiveSweep(now, running, best, place, budget, ends_at, latest, points)


def thinned_history(points: Sequence[HistoryPoint]) -> list[HistoryPoint]:
    """Return at most about `MOST_POINTS` points of a history: the improvements and evenly spaced others."""
    kept = {point.number for point in thinned(points, MOST_POINTS)}
    return [point for point in points if point.is_improvement or point.number in kept]


def events(attempts: Iterable[AttemptRecord], asked: Iterable[AuditEntry]) -> tuple[SweepEvent, ...]:
    """Return the latest events of a sweep, the newest first, at most `MOST_EVENTS`.

    Args:
        attempts: Attempts with the latest starts and ends.
        asked: Entries of the audit log about the sweep.
    """
    latest = [SweepEvent(entry.at, entry.action, entry.detail.get("trial"), entry.actor) for entry in asked]
    for attempt in attempts:
        label = trial_label(attempt.trial_key)
        latest.append(SweepEvent(attempt.started_at, "attempt started", label, attempt.node))
        if attempt.ended_at is not None:
            latest.append(SweepEvent(attempt.ended_at, f"attempt {attempt.state}", label, attempt.cause))
    return tuple(sorted(latest, key=lambda event: event.at, reverse=True)[:MOST_EVENTS])


def _running(ledger: Ledger, record: SweepRecord, trials: Sequence[TrialOutline]) -> Iterator[RunningTrial]:
    metric = str(record.facts["metric"])
    for trial in [trial for trial in trials if trial.state == "RUNNING"][:MOST_RUNNING]:
        last = ledger.recent_reports(trial.key, 1)
        value = last[-1].metrics.get(metric) if last else None
        speed, left = speed_of(ledger, trial)
        shown = value if value is not None and math.isfinite(value) else None
        yield RunningTrial(trial_label(trial.key), trial.step, trial.total_steps, shown, speed, left)


def _budget(record: SweepRecord, attempts: Iterable[AttemptOutline], now: float | None) -> Budget:
    """Return the budget of a sweep and its use, including running attempts."""
    limits, used = record.document["budget"], spent(attempts, record, now)
    return Budget(
        int(limits["trials"]),
        limits.get("hours"),
        limits.get("gpu_hours"),
        used.hours,
        used.gpu_hours,
        limits.get("target"),
        (limits.get("no_improvement") or {}).get("trials"),
    )


def learning_curves(
    name: str,
    metric: str | None,
    *,
    trials: int,
    points: int,
    chosen: Sequence[int] | None = None,
    root: str | Path | None = None,
) -> LearningCurves:
    """Return the learning curves of the running and the best trials, and the band of the others.

    Args:
        name: ID of the sweep or the beginning of it.
        metric: Metric of the curves; the objective if None.
        trials: Largest number of trials with a curve of their own.
        points: Largest number of points of a curve, evenly spaced.
        chosen: Numbers of the trials of the search with a curve of their own, beside the band of all trials;
            the running and the best trials if None.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The ledger does not exist, or not exactly one sweep matches.
    """
    with Workspace.at(root).ledger() as ledger:
        record = ledger.sweep(one_of(known_sweeps(ledger), name))
        if record is None:
            return LearningCurves(metric, (), 0, (), Band(0, ()))
        drawn = metric or str(record.facts["metric"])
        by_key = by_trial(point for point in ledger.curves(record.id, [drawn]) if drawn in point.metrics)
        maximize = record.facts["direction"] == "maximize"
        with_curves = sorted(
            (trial for trial in ledger.trials(record.id) if trial.key in by_key),
            key=lambda trial: _rank(trial, maximize),
        )
        metrics = shown_metrics(ledger, record)
        own = with_curves[:trials] if chosen is None else []
        curves = [_curve(trial, by_key[trial.key], drawn, points, record) for trial in own]
        if chosen is not None:
            curves = chosen_curves(ledger, record, metric, chosen, points=points)
    shown = {trial.key for trial in own}
    rest = [by_key[trial.key] for trial in with_curves if trial.key not in shown]
    band = Band(len(rest), thinned(_band(rest, drawn), points))
    rungs: list[float] = []
    if "training" in record.document:  # a script may report no steps
        sweep = config.from_document(record.document)
        rungs = [step for step in sweep.scheduler.rungs(sweep.training) if step < sweep.training.steps]
    return LearningCurves(drawn, metrics, len(with_curves), curves, band, references(record, drawn), rungs)


def chosen_curves(
    ledger: Ledger, record: SweepRecord, metric: str | None, chosen: Iterable[int], *, points: int
) -> list[TrialCurve]:
    """Return the learning curves of some trials of a search, the running ones first, then the best.

    Only their reports are read, which takes a small part of the time of `learning_curves`.

    Args:
        ledger: Ledger of the sweep.
        record: Record of the sweep.
        metric: Metric of the curves; the objective if None.
        chosen: Numbers of the trials; those without a report of the metric have no curve.
        points: Largest number of points of a curve, evenly spaced.
    """
    drawn, maximize = metric or str(record.facts["metric"]), record.facts["direction"] == "maximize"
    named = []
    for number in set(chosen):
        with suppress(KeyError):
            named.append(ledger.trial(trial_key(record.id, number)))
    curves = []
    for trial in sorted(named, key=lambda trial: _rank(trial, maximize)):
        reported = [
            CurvePoint(row.trial_key, row.step, {drawn: row.metrics[drawn]}, row.at)
            for row in ledger.trial_reports(trial.key)
            if drawn in row.metrics
        ]
        if reported:
            curves.append(_curve(trial, reported, drawn, points, record))
    return curves


def shown_metrics(ledger: Ledger, record: SweepRecord) -> list[str]:
    """Return the metrics of a sweep that have curves, from its first reports."""
    first = ledger.reports_after(record.id, None, _FIRST_REPORTS)
    return sorted({name for row in first for name in row.metrics} - unshown_metrics(record.document))


def references(record: SweepRecord, metric: str) -> list[ReferenceValue]:
    """Return reference values of a metric: that of a constant answer, and published results.

    A published test result is a reference for the validation metric of the same name. It is omitted if the
    data, the size or the training of the sweep differs from the published one.

    Args:
        record: Record of the sweep.
        metric: Metric of the curves.
    """
    found = []
    chance = (record.facts.get("chance") or {}).get("validation")
    if chance is not None and metric == record.facts["metric"]:
        found.append(
            ReferenceValue("chance" if metric.endswith("accuracy") else "constant answer", float(chance))
        )
    published = (record.document.get("published") or {}) if is_as_published(record, {}) else {}
    for name in dict.fromkeys((metric, metric.replace("val/", "test/", 1))):
        if isinstance(value := published.get(name), int | float):
            found.append(ReferenceValue("published", float(value)))
    return found


def _curve(
    trial: TrialRecord, points: Sequence[CurvePoint], metric: str, most: int, record: SweepRecord
) -> TrialCurve:
    kept = thinned(points, most)
    pairs = [(point.step, value if math.isfinite(value := point.metrics[metric]) else None) for point in kept]
    batch = trial.params.get("batch_size", (record.document.get("training") or {}).get("batch_size"))
    seconds = [round(point.at - trial.created_at, 1) for point in kept]
    return TrialCurve(
        trial.key, trial.number, trial.state, pairs, seconds, batch if isinstance(batch, int) else None
    )


def _band(curves: Sequence[Sequence[CurvePoint]], metric: str) -> list[tuple[int, float, float, float]]:
    """Return step, minimum, median and maximum of the finite values of curves."""
    values: dict[int, list[float]] = {}
    for points in curves:
        for point in points:
            if math.isfinite(value := point.metrics[metric]):
                values.setdefault(point.step, []).append(value)
    return [(step, min(row), median(row), max(row)) for step, row in sorted(values.items())]


def _rank(trial: TrialRecord, maximize: bool) -> tuple[float, ...]:
    """Sort key: running trials first, then the best."""
    if trial.state == "RUNNING":
        return (0.0, float(trial.number))
    if trial.value is None:
        return (2.0, float(trial.number))
    return (1.0, *order(trial.value, trial.number, maximize=maximize))


def thinned(points: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` evenly spaced points, including the first and the last."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(index * last / (most - 1))] for index in range(most)]
