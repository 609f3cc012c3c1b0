"""Routes that read sweeps, the queue and the clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from orchestrator.api import clusters
from orchestrator.api.clusters import Pool
from orchestrator.api.local_sweep import Sweep
from orchestrator.client.answers import (
    Changes,
    DetailedStatus,
    LiveSweep,
    MlflowRun,
    QueuedSweep,
    Status,
)
from orchestrator.ledger.sweeps.pareto import ParetoFront
from orchestrator.web.app_state import App, AppState
from orchestrator.web.paging import After, Limit, Offset, SortOrder, page

ROUTER = APIRouter()

SweepId = Annotated[str, Path(description="Whole ID of a sweep.", max_length=200)]
SweepSort = Literal["created_at", "finished_at", "id", "state", "owner", "task", "best_value"]

ANALYSIS_SECONDS = 30.0
"""Age up to which a cached analysis is returned: it reads every report of the sweep."""


@dataclass(frozen=True)
class SweepPage:
    """Page of the sweep list; `next` is `after` of the next page, or null."""

    total: int
    offset: int
    next: str | None
    sweeps: Sequence[Status]


@dataclass(frozen=True)
class MlflowRuns(MlflowRun):
    """Runs of a sweep and its trials in MLflow; `runs` are run IDs by the key of the trial."""

    runs: Mapping[str, str]


@dataclass(frozen=True)
class Norm:
    """Norm of the hidden state of a layer: pairs of step and value."""

    metric: str
    points: Sequence[tuple[int, float | None]]


@dataclass(frozen=True)
class ImportanceRow:
    """Importance of a hyperparameter, with the interval that holds 90 % of the resampled sweeps."""

    name: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class SweepAnalysis:
    """Importances, seconds by activity, and the hidden norms of the best trial."""

    importances: Sequence[ImportanceRow]
    seconds: Mapping[str, float]
    best: str | None
    norms: Sequence[Norm]


@dataclass(frozen=True)
class QueueList:
    """Every sweep that runs or waits."""

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
    sort: SweepSort = "created_at",
    descending: bool = True,
    after: After = None,
    offset: Offset = 0,
    limit: Limit = 100,
) -> SweepPage:
    """List sweeps, the newest first, with the best value of each."""
    wanted = {"state": state, "owner": owner, "task": task}
    rows = [
        row
        for row in all_sweeps(app)
        if all(value is None or getattr(row, field) == value for field, value in wanted.items())
        and (name is None or name in row.id)
    ]
    order = SortOrder[Status](
        f"sweeps {sort}", lambda row: getattr(row, sort), lambda row: row.id, descending
    )
    shown, following = page(rows, order, after=after, offset=offset, limit=limit)
    return SweepPage(len(rows), offset, following, shown)


def all_sweeps(app: AppState) -> Sequence[Status]:
    """Return every sweep, the oldest first, at most a second old."""

    def read() -> Sequence[Status]:
        with app.ledger() as ledger:
            return app.sweep_list.read(ledger)

    return app.cache.get("sweeps", read)


@ROUTER.get("/sweeps/{sweep_id}")
def show_sweep(app: App, sweep_id: SweepId) -> DetailedStatus:
    """Show the state of a sweep, its progress, its failures and its file."""
    return app.cache.get(("sweep", sweep_id), lambda: app.backend.status(sweep_id), about=sweep_id)


@ROUTER.get("/sweeps/{sweep_id}/live")
def show_live(app: App, sweep_id: SweepId) -> LiveSweep:
    """Show running trials, best values, position in the queue, budget and latest events of a sweep."""
    return app.cache.get(("live", sweep_id), lambda: app.backend.live(sweep_id), about=sweep_id)


@ROUTER.get("/sweeps/{sweep_id}/mlflow")
def show_mlflow(app: App, sweep_id: SweepId) -> MlflowRuns:
    """Show where MLflow has a sweep and its trials."""

    def read() -> MlflowRuns:
        with app.ledger() as ledger:
            runs = ledger.mlflow_runs(sweep_id)
        of_trials = {run: run_id for run, run_id in runs.items() if run != sweep_id}
        return MlflowRuns(**vars(app.backend.status(sweep_id).mlflow), runs=of_trials)

    return app.cache.get(("mlflow", sweep_id), read, about=sweep_id)


@ROUTER.get("/sweeps/{sweep_id}/analysis")
def analysis(app: App, sweep_id: SweepId) -> SweepAnalysis:
    """Show the importances of hyperparameters, the use of time, and hidden norms of the best trial."""

    def read() -> SweepAnalysis:
        found = Sweep.find(sweep_id, root=app.workspace.paths.root).analysis()
        norms = [Norm(name, points) for name, points in sorted(found.norms.items())]
        importances = [ImportanceRow(**asdict(importance)) for importance in found.importances]
        return SweepAnalysis(importances, found.spent.parts(), found.best, norms)

    return app.cache.get(("analysis", sweep_id), read, fresh=ANALYSIS_SECONDS)


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
    """List every sweep that runs or waits, with its share, its position and why it waits."""
    return QueueList(all_queued(app))


def all_queued(app: AppState) -> Sequence[QueuedSweep]:
    """Return the queue, at most a second old."""
    return app.cache.get("queue", app.backend.queue)


@ROUTER.get("/pool")
def show_pools(app: App) -> PoolList:
    """Show the machines of each cluster, and what every sweep uses of them."""
    return PoolList(app.cache.get("pools", lambda: clusters.pools(root=app.workspace.paths.root)))
