"""Routes that read trials, reports and learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Path, Query

from orchestrator.api.local import report_row, trial_row
from orchestrator.api.trial import unshown_metrics
from orchestrator.api.workspace import trial_named
from orchestrator.client.answers import Point, ReportRow, TrialDocument, TrialRow
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import (
    CurvePoint,
    ReportRecord,
    Role,
    SweepRecord,
    TrialRecord,
    TrialState,
    by_trial,
    trial_key,
)
from orchestrator.ledger.sweeps.selection import order
from orchestrator.web.app_state import App, AppState
from orchestrator.web.http_errors import not_found
from orchestrator.web.paging import (
    MOST_WHOLE,
    After,
    Limit,
    Offset,
    SortOrder,
    cursor,
    page,
    read_cursor,
    wrong_cursor,
)
from orchestrator.web.sweep_routes import SweepId

ROUTER = APIRouter()

Item = TypeVar("Item")

Number = Annotated[int, Path(ge=0, le=MOST_WHOLE, description="Number of a trial within its role.")]
TrialRole = Annotated[Role, Query(description="Whether the number is that of a confirmation.")]
TrialSort = Literal["number", "state", "value", "step", "attempts", "created_at", "finished_at"]


@dataclass(frozen=True)
class TrialPage:
    """Page of the trials of a sweep; `next` is `after` of the next page, or null."""

    total: int
    offset: int
    next: str | None
    trials: Sequence[TrialRow]


@dataclass(frozen=True)
class TrialReports:
    """All reports of a trial, by step."""

    reports: Sequence[ReportRow]


@dataclass(frozen=True)
class ReportPage:
    """Reports by time; `next` is `after` of later reports, or null before the first."""

    reports: Sequence[ReportRow]
    next: str | None


@dataclass(frozen=True)
class TrialCurve:
    """Learning curve of a trial: pairs of step and value."""

    trial: str
    number: int
    state: TrialState
    points: Sequence[Point]


@dataclass(frozen=True)
class Band:
    """Trials without a curve of their own: step, minimum, median and maximum."""

    trials: int
    points: Sequence[tuple[int, float, float, float]]


@dataclass(frozen=True)
class LearningCurves:
    """Learning curves of some trials, and the band of the others; `metric` can be one of `metrics`."""

    metric: str | None
    metrics: Sequence[str]
    total: int
    curves: Sequence[TrialCurve]
    band: Band


@ROUTER.get("/sweeps/{sweep_id}/trials")
def list_trials(
    app: App,
    sweep_id: SweepId,
    sort: TrialSort = "number",
    descending: bool = False,
    after: After = None,
    offset: Offset = 0,
    limit: Limit = 100,
) -> TrialPage:
    """List the trials of a sweep; trials without a value in the sort column come last."""

    def read() -> Sequence[TrialRecord]:
        with app.ledger() as ledger:
            return ledger.trials(sweep_id)

    trials = app.cache.get(("trials", sweep_id), read, about=sweep_id)
    by_column = SortOrder[TrialRecord](
        f"trials {sort}",
        lambda trial: getattr(trial, sort),
        lambda trial: f"{trial.role != 'search':d}{trial.number:012}",
        descending,
    )
    rows, following = page(trials, by_column, after=after, offset=offset, limit=limit)
    return TrialPage(len(trials), offset, following, [trial_row(trial) for trial in rows])


@ROUTER.get("/sweeps/{sweep_id}/trials/{number}")
def show_trial(app: App, sweep_id: SweepId, number: Number, role: TrialRole = "search") -> TrialDocument:
    """Show a trial with its attempts, checkpoints and evaluations."""
    key = trial_key(sweep_id, number, role)

    def read() -> TrialDocument:
        with app.ledger() as ledger:
            try:
                trial_named(ledger, key)
            except BadInput as refusal:
                raise not_found(refusal) from None
        return app.backend.trial(key)

    return app.cache.get(("trial", key), read, about=sweep_id)


@ROUTER.get("/sweeps/{sweep_id}/trials/{number}/reports")
def list_trial_reports(
    app: App, sweep_id: SweepId, number: Number, role: TrialRole = "search"
) -> TrialReports:
    """List all reports of a trial, by step."""
    return TrialReports(app.backend.reports(trial_key(sweep_id, number, role)))


@ROUTER.get("/sweeps/{sweep_id}/reports")
def list_reports(app: App, sweep_id: SweepId, after: After = None, limit: Limit = 1000) -> ReportPage:
    """List reports by time; `next` continues with later ones, at any time."""
    last = None
    if after is not None:
        at, key, step = read_cursor(after, 3)
        if not (isinstance(at, float) and isinstance(key, str) and isinstance(step, int)):
            raise wrong_cursor(after)
        if not (isfinite(at) and key.isprintable() and abs(step) <= MOST_WHOLE):
            raise wrong_cursor(after)
        last = ReportRecord(key, step, "", {}, at)
    with app.ledger() as ledger:
        rows = ledger.reports_after(sweep_id, last, limit)
    following = cursor(float(rows[-1].at), rows[-1].trial_key, rows[-1].step) if rows else after
    return ReportPage([report_row(row) for row in rows], following)


@ROUTER.get("/sweeps/{sweep_id}/curves")
def show_curves(
    app: App,
    sweep_id: SweepId,
    metric: Annotated[str | None, Query(description="Metric; the objective by default.")] = None,
    trials: Annotated[int, Query(ge=1, le=50)] = 20,
    points: Annotated[int, Query(ge=2, le=1000)] = 500,
) -> LearningCurves:
    """Show the learning curves of the running and the best trials, and the band of the others."""

    def read() -> LearningCurves:
        with app.ledger() as ledger:
            record = ledger.sweep(sweep_id)
            if record is None:
                return LearningCurves(metric, [], 0, [], Band(0, []))
            chosen = metric or str(record.facts["metric"])
            by_key = by_trial(point for point in ledger.curves(sweep_id, [chosen]) if chosen in point.metrics)
            maximize = record.facts["direction"] == "maximize"
            shown = sorted(
                (trial for trial in ledger.trials(sweep_id) if trial.key in by_key),
                key=lambda trial: _rank(trial, maximize),
            )
            metrics = _metrics(ledger, app, record)
        curves = [_curve(trial, by_key[trial.key], chosen, points) for trial in shown[:trials]]
        rest = [by_key[trial.key] for trial in shown[trials:]]
        others = Band(len(rest), thinned(_band(rest, chosen), points))
        return LearningCurves(chosen, metrics, len(shown), curves, others)

    return app.cache.get(("curves", sweep_id, metric, trials, points), read, about=sweep_id)


def _metrics(ledger: Ledger, app: AppState, record: SweepRecord) -> list[str]:
    """Return the visible metrics of the first reports of a sweep."""

    def read() -> list[str]:
        first = ledger.reports_after(record.id, None, 10)
        return sorted({name for row in first for name in row.metrics} - unshown_metrics(record.document))

    return app.cache.get(("metrics", record.id), read, about=record.id)


def _curve(trial: TrialRecord, points: Sequence[CurvePoint], metric: str, most: int) -> TrialCurve:
    pairs = [(point.step, point.metrics[metric]) for point in thinned(points, most)]
    return TrialCurve(trial.key, trial.number, trial.state, pairs)


def _band(curves: Sequence[Sequence[CurvePoint]], metric: str) -> list[tuple[int, float, float, float]]:
    """Return step, minimum, median and maximum of the finite values of curves."""
    values: dict[int, list[float]] = {}
    for points in curves:
        for point in points:
            if isfinite(value := point.metrics[metric]):
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
    """Return at most `most` evenly spaced points, the first and the last included."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(index * last / (most - 1))] for index in range(most)]
