"""Routes that read sweeps, the queue and the clusters."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field

from orchestrator.api.local import is_wanted
from orchestrator.api.status import settled_version, with_notes
from orchestrator.client.answers import (
    Changes,
    ComparedSweeps,
    Deletion,
    DiskUse,
    LiveSweep,
    Pool,
    QueryAnswer,
    QueuedSweep,
    ReplayReport,
    SweepAnalysis,
    SweepAnswer,
)
from orchestrator.client.protocol import SQL_ROWS
from orchestrator.client.statuses import DetailedStatus, MlflowRun, Status
from orchestrator.ledger.sweeps.pareto import ParetoFront
from orchestrator.web.access import SignedIn
from orchestrator.web.app_state import App, AppState
from orchestrator.web.file_checks import queried, replayed
from orchestrator.web.paging import MOST_WHOLE, After, Limit, Offset, SortOrder
from orchestrator.web.paging import page as page_of

ROUTER = APIRouter()

SweepId = Annotated[str, Path(description="Whole ID of a sweep.", max_length=200)]
SweepSort = Literal["created_at", "finished_at", "id", "state", "owner", "task", "best_value"]

ANALYSIS_SECONDS = 30.0
"""Age up to which a cached result is returned: it reads every report of the sweep."""

ANALYSIS_FRESH_SECONDS = 5.0
"""Age up to which a cached analysis or comparison is returned; an older one is renewed in the background."""

ANALYSIS_PATIENCE_SECONDS = 0.5
"""Longest wait for an analysis or a comparison of which an older one exists."""

DISK_SECONDS = 60.0
"""Age up to which the sizes of sweeps are returned again: every file is looked at."""

MOST_COMPARED = 50
"""Largest number of sweeps of a comparison."""

MOST_REPLAYED = 20
"""Largest number of schedulers, and of numbers of workers, of a replay."""


@dataclass(frozen=True)
class SweepPage:
    """Page of the sweep list; `next` is `after` of the next page, or null."""

    total: int
    offset: int
    next: str | None
    sweeps: Sequence[Status]


@dataclass(frozen=True)
class DiskList:
    """Space that sweeps take, the largest first."""

    disk: Sequence[DiskUse]


@dataclass(frozen=True)
class MlflowRuns(MlflowRun):
    """Runs of a sweep and its trials in MLflow; `runs` are run IDs by the key of the trial."""

    runs: Mapping[str, str]


@dataclass(frozen=True)
class QueueList:
    """The sweeps that run or wait."""

    queue: Sequence[QueuedSweep]


@dataclass(frozen=True)
class PoolList:
    """Clusters on which sweeps run."""

    pools: Sequence[Pool]


@ROUTER.get("/sweeps")
def list_sweeps(
    app: App,
    state: Annotated[str | None, Query(description="Only sweeps in this state.", max_length=20)] = None,
    owner: Annotated[str | None, Query(description="Only sweeps of this owner.", max_length=64)] = None,
    task: Annotated[str | None, Query(description="Only sweeps of this task.", max_length=200)] = None,
    name: Annotated[str | None, Query(description="Only IDs that contain this.", max_length=200)] = None,
    tag: Annotated[str | None, Query(description="Only sweeps with this tag.", max_length=64)] = None,
    favourite: Annotated[bool | None, Query(description="Only favourites, or only others.")] = None,
    since: Annotated[float | None, Query(description="Only sweeps from this time on, in seconds.")] = None,
    archived: Annotated[
        Literal["none", "only", "any"], Query(description="Archived and deleted sweeps among these.")
    ] = "none",
    sort: SweepSort = "created_at",
    descending: bool = True,
    after: After = None,
    offset: Offset = 0,
    limit: Limit = 100,
) -> SweepPage:
    """List sweeps, the newest first, with the best value of each."""
    wanted = {"state": state, "owner": owner, "favourite": favourite}
    rows = [
        row
        for row in all_sweeps(app)
        if all(value is None or getattr(row, field) == value for field, value in wanted.items())
        and (name is None or name in row.id)
        and is_wanted(row, tag, task, since)
        and (archived == "any" or (row.shelf is not None) == (archived == "only"))
    ]
    order = SortOrder[Status](
        f"sweeps {sort}", lambda row: getattr(row, sort), lambda row: row.id, descending
    )
    shown, following = page_of(rows, order, after=after, offset=offset, limit=limit)
    return SweepPage(len(rows), offset, following, shown)


@ROUTER.get("/sweeps/{sweep_id}/deletion")
def show_deletion(app: App, sweep_id: SweepId) -> Deletion:
    """Show what the deletion of a sweep removes, and what refers to it."""
    return app.backend.deletion(sweep_id)


@ROUTER.get("/disk")
def show_disk(app: App) -> DiskList:
    """Show the space that each sweep takes outside the ledger, at most a minute old."""
    return DiskList(app.cache.get("disk", app.backend.disk, fresh=DISK_SECONDS))


def all_sweeps(app: AppState) -> Sequence[Status]:
    """Return every sweep, the oldest first, at most a second old."""

    def read() -> Sequence[Status]:
        with app.ledger() as ledger:
            return with_notes(ledger, app.sweep_list.read(ledger))

    return app.cache.get("sweeps", read)


@ROUTER.get("/sweeps/{sweep_id}")
def show_sweep(app: App, sweep_id: SweepId) -> DetailedStatus:
    """Show the state of a sweep, its progress, its failures and its file."""

    def version() -> Hashable:
        with app.ledger() as ledger:
            return settled_version(ledger, sweep_id)

    return app.cache.get(
        ("sweep", sweep_id), lambda: app.backend.status(sweep_id), about=sweep_id, version=version
    )


@ROUTER.get("/sweeps/{sweep_id}/live")
def show_live(app: App, sweep_id: SweepId) -> LiveSweep:
    """Show running trials, best values, position in the queue, budget and latest events of a sweep."""
    return app.cache.get(("live", sweep_id), lambda: app.backend.live(sweep_id), about=sweep_id)


@ROUTER.get("/sweeps/{sweep_id}/mlflow")
def show_mlflow(app: App, sweep_id: SweepId) -> MlflowRuns:
    """Show the runs of a sweep and its trials in MLflow."""

    def read() -> MlflowRuns:
        with app.ledger() as ledger:
            runs = ledger.mlflow_runs(sweep_id)
        of_trials = {run: run_id for run, run_id in runs.items() if run != sweep_id}
        return MlflowRuns(**vars(app.backend.status(sweep_id).mlflow), runs=of_trials)

    return app.cache.get(("mlflow", sweep_id), read, about=sweep_id)


@ROUTER.get("/sweeps/{sweep_id}/analysis")
def analysis(app: App, sweep_id: SweepId) -> SweepAnalysis:
    """Show the importances of hyperparameters, the use of time, and hidden norms of the best trial.

    For a large sweep, this is the last analysis, made at `as_of`, while a new one is made.
    """
    return app.cache.get(
        ("analysis", sweep_id),
        lambda: app.backend.analysis(sweep_id),
        fresh=ANALYSIS_FRESH_SECONDS,
        patience=ANALYSIS_PATIENCE_SECONDS,
        version=lambda: app.version(sweep_id),
    )


@ROUTER.get("/sweeps/{sweep_id}/result")
def show_result(app: App, sweep_id: SweepId) -> SweepAnswer:
    """Show the chosen trial of a sweep in sentences, as its report begins, and its checkpoint."""
    return app.cache.get(
        ("result", sweep_id),
        lambda: app.backend.result(sweep_id),
        fresh=ANALYSIS_SECONDS,
        version=lambda: app.version(sweep_id),
    )


@ROUTER.get("/compare")
def compare(
    app: App,
    sweep: Annotated[list[str], Query(min_length=1, max_length=MOST_COMPARED, description="IDs of sweeps.")],
    tuning: Annotated[
        bool, Query(description="Add tuning curves (the best of k trials), for random searches.")
    ] = False,
    page: Annotated[bool, Query(description="Add an HTML page with plots of the curves.")] = False,
) -> ComparedSweeps:
    """Compare sweeps: results by seed, trials spent, established differences and published results."""

    def version() -> Hashable:
        found = tuple(map(app.version, sweep))
        return None if None in found else found

    return app.cache.get(
        ("compare", *sweep, tuning, page),
        lambda: app.backend.compare(sweep, tuning=tuning, page=page),
        fresh=ANALYSIS_FRESH_SECONDS,
        patience=ANALYSIS_PATIENCE_SECONDS,
        version=version,
    )


@ROUTER.get("/sweeps/{sweep_id}/replay")
def replay(
    app: App,
    user: SignedIn,
    sweep_id: SweepId,
    scheduler: Annotated[
        list[str] | None, Query(max_length=MOST_REPLAYED, description="Such as `asha:reduction=3`.")
    ] = None,
    workers: Annotated[
        list[Annotated[int, Field(ge=-MOST_WHOLE, le=MOST_WHOLE)]] | None,
        Query(max_length=MOST_REPLAYED, description="Numbers of concurrent trials."),
    ] = None,
    draws: Annotated[
        int, Query(ge=0, le=1000, description="Number of replays, each with the trials in another order.")
    ] = 1,
) -> ReplayReport:
    """Replay other schedulers on the learning curves of a sweep, with the limits of a file check."""
    return replayed(app, user.name, sweep_id, scheduler or (), workers or (), draws)


@ROUTER.get("/sql")
def sql(
    app: App,
    user: SignedIn,
    query: Annotated[str, Query(description="One SELECT.")],
    rows: Annotated[
        int, Query(ge=-MOST_WHOLE, le=MOST_WHOLE, description="Largest number of rows, from 1 to 10,000.")
    ] = SQL_ROWS,
) -> QueryAnswer:
    """Query the views of the ledger with one SELECT in SQLite's dialect, with the limits of a file check."""
    return queried(app, user.name, query, rows)


@ROUTER.get("/sweeps/{sweep_id}/pareto")
def show_pareto(app: App, sweep_id: SweepId) -> ParetoFront:
    """Show the trials that no other one dominates in all objectives, and their hypervolume."""
    return app.cache.get(("pareto", sweep_id), lambda: app.backend.pareto(sweep_id), about=sweep_id)


@ROUTER.get("/sweeps/{sweep_id}/changes")
def show_changes(app: App, sweep_id: SweepId) -> Changes:
    """Show the differences from the previous sweep of the same file and profile."""
    return app.cache.get(("changes", sweep_id), lambda: app.backend.changes(sweep_id))


@ROUTER.get("/queue")
def list_queue(app: App) -> QueueList:
    """List the sweeps that run or wait, with share, position and reason for waiting."""
    return QueueList(all_queued(app))


def all_queued(app: AppState) -> Sequence[QueuedSweep]:
    """Return the queue, at most a second old."""
    return app.cache.get("queue", app.backend.queue)


@ROUTER.get("/pool")
def show_pools(app: App) -> PoolList:
    """Show the machines of each cluster and their use by each sweep."""
    return PoolList(app.cache.get("pools", app.backend.pools))
