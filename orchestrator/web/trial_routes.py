"""Routes that read trials, reports and learning curves."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Annotated

from fastapi import APIRouter, Path, Query

from orchestrator.api.live import chosen_curves, shown_metrics
from orchestrator.api.local import finite, report_row, trial_row
from orchestrator.client.answers import LearningCurves, ReportRow, TrialDocument, TrialRow
from orchestrator.client.protocol import CURVE_POINTS, CURVES
from orchestrator.ledger.people.notes import favourite_trials
from orchestrator.ledger.sweeps.records import ReportRecord, Role, trial_key
from orchestrator.ledger.sweeps.standing import read_values
from orchestrator.web.app_state import App, AppState
from orchestrator.web.paging import (
    MOST_WHOLE,
    After,
    Limit,
    Offset,
    cursor,
    page,
    read_cursor,
    wrong_cursor,
)
from orchestrator.web.sweep_routes import SweepId
from orchestrator.web.trial_table import TrialColumn, TrialEntry, TrialTable, columns_of, rows_of

ROUTER = APIRouter()

Number = Annotated[int, Path(ge=0, le=MOST_WHOLE, description="Number of a trial within its role.")]
TrialRole = Annotated[Role, Query(description="Whether the number is that of a confirmation.")]
TrialSort = Annotated[
    str, Query(max_length=200, description="Column: a field such as `value`, a hyperparameter or a metric.")
]
TrialFilter = Annotated[
    str, Query(max_length=1000, description="Comparisons such as `learning_rate < 1e-3 and state = pruned`.")
]
MOST_CHOSEN = 50
"""Largest number of states, metrics and trials that a request can name."""


@dataclass(frozen=True)
class RankedTrial(TrialRow):
    """A trial of the table.

    Attributes:
        rank: Place among the trials with a value, the running and the pruned ones included, from 1; None
            without a value, and if it has failed.
        so_far: Its value, or the best report so far of an unfinished trial; None without one.
        so_far_step: Step of that value, or None.
        last: Objective in its last report, or None.
        metrics: The metrics that the request names, at that step.
        favourite: Whether a user has marked it.
    """

    rank: int | None
    so_far: float | None
    so_far_step: int | None
    last: float | None
    metrics: Mapping[str, float | None]
    favourite: bool


@dataclass(frozen=True)
class TrialPage:
    """Page of the trials of a sweep; `next` is `after` of the next page, or null.

    Attributes:
        total: Number of trials that the filter leaves.
        columns: Hyperparameters and metrics of the sweep, to show, sort and filter by.
    """

    total: int
    offset: int
    next: str | None
    trials: Sequence[RankedTrial]
    columns: Sequence[TrialColumn] = ()


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
    where: TrialFilter = "",
    state: Annotated[
        list[str] | None, Query(max_length=MOST_CHOSEN, description="Only trials in one of these states.")
    ] = None,
    metric: Annotated[
        list[str] | None, Query(max_length=MOST_CHOSEN, description="Metrics that the trials show.")
    ] = None,
    after: After = None,
    offset: Offset = 0,
    limit: Limit = 100,
) -> TrialPage:
    """List the trials of a sweep; trials without a value in the sort column come last."""
    table = _table(app, sweep_id, metrics=False)
    if metric or table.reads_metrics(where, sort):
        table = _table(app, sweep_id, metrics=True)
    matching = table.matching(where, state or ())
    rows, following = page(
        matching, table.sorted_by(sort, descending=descending), after=after, offset=offset, limit=limit
    )
    with app.ledger() as ledger:
        record = ledger.sweep(sweep_id)
        objective = None if record is None else str(record.facts["metric"])
        reported = ledger.last_reports([row.trial.key for row in rows if row.trial.step])
    last = {key: report.metrics.get(objective or "") for key, report in reported.items()}
    shown = [_ranked_trial(row, last.get(row.trial.key), metric or ()) for row in rows]
    return TrialPage(len(matching), offset, following, shown, table.columns)


def _table(app: AppState, sweep_id: str, *, metrics: bool) -> TrialTable:
    """Return the table of a sweep, at most a second old."""

    def version() -> Hashable:
        found = app.version(sweep_id)
        with app.ledger() as ledger:  # a mark does not change the rows of the sweep
            return found and (found, favourite_trials(ledger, sweep_id))

    def read() -> TrialTable:
        with app.ledger() as ledger:
            record, trials = ledger.sweep(sweep_id), ledger.trials(sweep_id)
            if record is None:
                return TrialTable((), ())
            at_best: dict[str, Mapping[str, float]] = {}
            if metrics:
                unfinished = {row.trial_key: row.metrics for row in ledger.best_of_unfinished(sweep_id)}
                at_best = {**ledger.best_metrics(sweep_id), **unfinished}
            maximize = record.facts["direction"] == "maximize"
            values = read_values(ledger, record, trials)
            marked = favourite_trials(ledger, sweep_id)
            rows = rows_of(trials, values, maximize=maximize, metrics=at_best, favourites=marked)
            return TrialTable(rows, columns_of(record.document, trials, shown_metrics(ledger, record)))

    return app.cache.get(("trials", sweep_id, metrics), read, about=sweep_id, version=version)


def _ranked_trial(row: TrialEntry, last: float | None, metrics: Sequence[str]) -> RankedTrial:
    return RankedTrial(
        **vars(trial_row(row.trial)),
        rank=row.rank,
        so_far=row.value,
        so_far_step=row.best_step,
        last=finite(last),
        metrics={name: finite(row.metrics.get(name)) for name in metrics},
        favourite=row.favourite,
    )


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
    trial: Annotated[
        list[int] | None,
        Query(max_length=MOST_CHOSEN, description="Numbers of the trials with a curve of their own."),
    ] = None,
) -> LearningCurves:
    """Show the curves of the running and the best trials, and the band of the others.

    If trials are named, show their curves and the band of all trials.
    """
    # The band of all trials stays the same while a reader changes the filter; it takes most of the time.
    chosen = None if trial is None else ()
    found: LearningCurves = app.cache.get(
        ("curves", sweep_id, metric, trials, points, chosen),
        lambda: app.backend.curves(sweep_id, metric, trials=trials, points=points, chosen=chosen),
        about=sweep_id,
        version=lambda: app.version(sweep_id),
    )
    if trial is None:
        return found
    with app.ledger() as ledger:
        record = ledger.sweep(sweep_id)
        own = [] if record is None else chosen_curves(ledger, record, metric, trial, points=points)
    return replace(found, curves=own)
