"""Routes that read trials, reports and learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from orchestrator.api.local import report_row, trial_row
from orchestrator.client.answers import LearningCurves, ReportRow, TrialDocument, TrialRow
from orchestrator.client.protocol import CURVE_POINTS, CURVES
from orchestrator.ledger.sweeps.records import ReportRecord, Role, TrialRecord, trial_key
from orchestrator.web.app_state import App
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
    return app.cache.get(("trial", key), lambda: app.backend.trial(key), about=sweep_id)


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
    trials: Annotated[int, Query(ge=1, le=50)] = CURVES,
    points: Annotated[int, Query(ge=2, le=1000)] = CURVE_POINTS,
) -> LearningCurves:
    """Show the learning curves of the running and the best trials, and the band of the others."""
    return app.cache.get(
        ("curves", sweep_id, metric, trials, points),
        lambda: app.backend.curves(sweep_id, metric, trials=trials, points=points),
        about=sweep_id,
    )
