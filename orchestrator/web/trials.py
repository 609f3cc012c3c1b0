"""The routes that read trials: tables, single trials, reports and curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from orchestrator.api.trial import unshown_metrics
from orchestrator.api.workspace import trial_named
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import ReportRecord, Role, SweepRecord, TrialRecord, trial_key
from orchestrator.web import documents, models
from orchestrator.web.paging import MOST_WHOLE, cursor, read_cursor, wrong_cursor
from orchestrator.web.problems import NotFound
from orchestrator.web.reading import After, Document, SweepId
from orchestrator.web.site import Here, Site

ROUTER = APIRouter()

Number = Annotated[int, Path(ge=0, le=MOST_WHOLE, description="Number of a trial within its role.")]
TrialRole = Annotated[Role, Query(description="Whether the number is that of a confirmation.")]
TrialSort = Literal["number", "state", "value", "step", "attempts", "created_at", "finished_at"]


@ROUTER.get("/sweeps/{sweep_id}/trials", response_model=models.TrialList)
def list_trials(
    site: Here,
    sweep_id: SweepId,
    sort: TrialSort = "number",
    descending: bool = False,
    after: After = None,
    offset: Annotated[int, Query(ge=0, le=MOST_WHOLE)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Document:
    """Return one page of the trials of a sweep."""

    def read() -> Sequence[TrialRecord]:
        with site.ledger() as ledger:
            return ledger.trials(sweep_id)

    trials = site.snapshots.get(("trials", sweep_id), read, about=sweep_id)
    return documents.trial_page(trials, sort, descending=descending, offset=offset, limit=limit, after=after)


@ROUTER.get("/sweeps/{sweep_id}/trials/{number}", response_model=models.TrialDocument)
def show_trial(site: Here, sweep_id: SweepId, number: Number, role: TrialRole = "search") -> Document:
    """Return everything that the ledger knows of a trial: attempts, causes, checkpoints, evaluations."""
    key = trial_key(sweep_id, number, role)

    def read() -> Document:
        with site.ledger() as ledger:
            try:
                trial_named(ledger, key)
            except BadInput as refusal:
                raise NotFound(refusal.where, refusal.must, refusal.got, refusal.remedy) from None
        return asdict(site.backend.trial(key))

    return site.snapshots.get(("trial", key), read, about=sweep_id)


@ROUTER.get("/sweeps/{sweep_id}/trials/{number}/reports", response_model=models.TrialReports)
def list_trial_reports(site: Here, sweep_id: SweepId, number: Number, role: TrialRole = "search") -> Document:
    """Return all reports of a trial, by step."""
    rows = site.backend.reports(trial_key(sweep_id, number, role))
    return {"reports": [asdict(row) for row in rows]}


@ROUTER.get("/sweeps/{sweep_id}/reports", response_model=models.Reports)
def list_reports(
    site: Here,
    sweep_id: SweepId,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> Document:
    """Return reports in the order of their times; `next` is the `after` of those that follow, also later."""
    last = None
    if after is not None:
        at, key, step = read_cursor(after, 3)
        if not (isinstance(at, float) and isinstance(key, str) and isinstance(step, int)):
            raise wrong_cursor(after)
        if not (isfinite(at) and key.isprintable() and abs(step) <= MOST_WHOLE):
            raise wrong_cursor(after)
        last = ReportRecord(key, step, "", {}, at)
    with site.ledger() as ledger:
        rows = ledger.reports_after(sweep_id, last, limit)
    following = cursor(float(rows[-1].at), rows[-1].trial_key, rows[-1].step) if rows else after
    return {"reports": [documents.report(row) for row in rows], "next": following}


@ROUTER.get("/sweeps/{sweep_id}/curves", response_model=models.Curves)
def show_curves(
    site: Here,
    sweep_id: SweepId,
    metric: Annotated[str | None, Query(description="What the sweep optimises, if left out.")] = None,
    trials: Annotated[int, Query(ge=1, le=50)] = 20,
    points: Annotated[int, Query(ge=2, le=1000)] = 500,
) -> Document:
    """Return the learning curves of the running and of the best trials, and the band of all others."""

    def read() -> Document:
        with site.ledger() as ledger:
            record = ledger.sweep(sweep_id)
            if record is None:
                band = {"trials": 0, "points": []}
                return {"metric": metric, "metrics": [], "total": 0, "curves": [], "band": band}
            chosen = metric or str(record.facts["metric"])
            shown = documents.curves(
                ledger.curves(sweep_id, [chosen]),
                ledger.trials(sweep_id),
                chosen,
                maximize=record.facts["direction"] == "maximize",
                most_trials=trials,
                most_points=points,
            )
            return {**shown, "metrics": _metrics(ledger, site, record)}

    return site.snapshots.get(("curves", sweep_id, metric, trials, points), read, about=sweep_id)


def _metrics(ledger: Ledger, site: Site, record: SweepRecord) -> list[str]:
    """Return the names of the metrics in the first reports of a sweep that people are shown."""

    def read() -> list[str]:
        first = ledger.reports_after(record.id, None, 10)
        return sorted({name for row in first for name in row.metrics} - unshown_metrics(record.document))

    return site.snapshots.get(("metrics", record.id), read, about=record.id)
