"""The routes that read: sweeps, the queue, the clusters and quotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query

from orchestrator.api import clusters, priorities
from orchestrator.api.serving import MOST_SILENT_SECONDS
from orchestrator.config.trainable import task_of
from orchestrator.errors import BadInput
from orchestrator.ledger.pool import claims
from orchestrator.ledger.queue import submissions
from orchestrator.sharing.rows import UNIT, Owner
from orchestrator.web import models
from orchestrator.web.access import SignedIn
from orchestrator.web.paging import MOST_WHOLE, Order, page
from orchestrator.web.problems import NotFound, NotWorking
from orchestrator.web.site import Here, Site

ROUTER = APIRouter()

Document = dict[str, Any]
OwnerName = Annotated[str, Path(description="In whose name sweeps run.", max_length=200)]
SweepId = Annotated[str, Path(description="Whole id of a sweep.", max_length=200)]
After = Annotated[str | None, Query(description="`next` of an earlier page.", max_length=400)]
SweepSort = Literal["created_at", "finished_at", "id", "state", "owner", "task", "best_value"]


@ROUTER.get("/healthz")
async def health(site: Here) -> models.Health:
    """Return that the server answers, and that the supervision beside it completes its rounds."""
    if site.rounds is not None and site.rounds.are_late:
        must = f"must complete a round every {MOST_SILENT_SECONDS:g} s"
        got = f"none for {site.rounds.silent_seconds:.0f} s"
        remedy = "The log of the service says what it waits for, such as its ledger; else start it again."
        raise NotWorking("supervision", must, got, remedy)
    return models.Health(status="ok")


@ROUTER.get("/readyz")
def ready(site: Here) -> models.Health:
    """Return that the ledger answers too."""
    site.users()
    return models.Health(status="ok")


@ROUTER.get("/me", response_model=models.UserRow)
def me(user: SignedIn) -> Document:
    """Return the user of the token."""
    return asdict(user)


@ROUTER.get("/sweeps", response_model=models.SweepList)
def list_sweeps(
    site: Here,
    state: Annotated[str | None, Query(description="Only sweeps in this state.", max_length=20)] = None,
    owner: Annotated[str | None, Query(description="Only sweeps of this owner.", max_length=64)] = None,
    task: Annotated[str | None, Query(description="Only sweeps of this task.", max_length=200)] = None,
    name: Annotated[str | None, Query(description="Only ids that contain this.", max_length=200)] = None,
    sort: SweepSort = "created_at",
    descending: bool = True,
    after: After = None,
    offset: Annotated[int, Query(ge=0, le=MOST_WHOLE)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Document:
    """Return one page of the sweeps, the newest first, with the best value of each."""
    wanted = {"state": state, "owner": owner, "task": task}
    rows = [
        row
        for row in sweep_rows(site)
        if all(value is None or row[field] == value for field, value in wanted.items())
        and (name is None or name in row["id"])
    ]
    order = Order[Mapping[str, Any]](
        f"sweeps {sort}", lambda row: row[sort], lambda row: row["id"], descending
    )
    shown, following = page(rows, order, after=after, offset=offset, limit=limit)
    return {"total": len(rows), "offset": offset, "next": following, "sweeps": shown}


def sweep_rows(site: Site) -> list[Document]:
    """Return every sweep as it was at most a second ago, the oldest first."""

    def read() -> list[Document]:
        with site.ledger() as ledger:
            return site.overviews.read(ledger)

    return site.snapshots.get("sweeps", read)


@ROUTER.get("/sweeps/{sweep_id}", response_model=models.SweepDocument)
def show_sweep(site: Here, sweep_id: SweepId) -> Document:
    """Return the state of a sweep, its progress, its failures and its file."""
    return sweep_document(site, sweep_id)


def sweep_document(site: Site, sweep_id: str) -> Document:
    """Return a sweep as it was at most a second ago."""

    def read() -> Document:
        return asdict(site.backend.status(sweep_id))

    return site.snapshots.get(("sweep", sweep_id), read, about=sweep_id)


@ROUTER.get("/sweeps/{sweep_id}/live", response_model=models.Live)
def show_live(site: Here, sweep_id: SweepId) -> Document:
    """Return what a sweep does now: running trials, best values, place, budget and latest events."""

    def read() -> Document:
        return asdict(site.backend.live(sweep_id))

    return site.snapshots.get(("live", sweep_id), read, about=sweep_id)


@ROUTER.get("/sweeps/{sweep_id}/mlflow", response_model=models.MlflowRuns)
def show_mlflow(site: Here, sweep_id: SweepId) -> Document:
    """Return where MLflow shows a sweep, and its run of each trial."""
    runs = {run: run_id for run, run_id in mlflow_runs(site, sweep_id).items() if run != sweep_id}
    return {**mlflow_run(site, sweep_id, sweep_id), "runs": runs}


def mlflow_run(site: Site, sweep_id: str, run: str) -> Document:
    """Return where MLflow shows a sweep or one of its trials."""
    run_id = mlflow_runs(site, sweep_id).get(run)
    server = site.workspace.tracking_server or ""
    url = (
        f"{server.rstrip('/')}/#/runs/{run_id}"
        if run_id and server.startswith(("http://", "https://"))
        else None
    )
    return {"experiment": _task(site, sweep_id), "run_id": run_id, "url": url}


def mlflow_runs(site: Site, sweep_id: str) -> Mapping[str, str]:
    """Return MLflow's ids of the runs of a sweep, by sweep id and trial key."""

    def read() -> Mapping[str, str]:
        with site.ledger() as ledger:
            return ledger.mlflow_runs(sweep_id)

    return site.snapshots.get(("mlflow", sweep_id), read, about=sweep_id)


def _task(site: Site, sweep_id: str) -> str:
    """Return the name of the task of a sweep, which is that of its experiment in MLflow."""

    def read() -> str:
        with site.ledger() as ledger:
            record = ledger.sweep(sweep_id)
            submission = submissions.submission(ledger, sweep_id)
        return record.task if record else task_of(submission.document) if submission else ""

    return site.snapshots.get(("task", sweep_id), read)


@ROUTER.get("/queue", response_model=models.Queue)
def list_queue(site: Here) -> Document:
    """Return every sweep that runs or waits, with its share, its position and why it waits."""
    return queue_document(site)


def queue_document(site: Site) -> Document:
    """Return the queue as it was at most a second ago."""

    def read() -> Document:
        entries = priorities.queue(root=site.workspace.paths.root)
        return {"queue": [asdict(entry) for entry in entries]}

    return site.snapshots.get("queue", read)


@ROUTER.get("/pool", response_model=models.Pools)
def show_pools(site: Here) -> Document:
    """Return the clusters on which sweeps run: their machines, and which sweep uses how much of them."""

    def read() -> Document:
        return {"pools": [asdict(found) for found in clusters.pools(root=site.workspace.paths.root)]}

    return site.snapshots.get("pools", read)


@ROUTER.get("/quotas", response_model=models.Quotas)
def list_quotas(site: Here) -> Document:
    """Return the weight and the quotas of every owner for whom they were set."""

    def read() -> Document:
        with site.ledger() as ledger:
            owners = claims.owners(ledger)
        return {"quotas": [_quota(owner) for owner in owners.values()]}

    return site.snapshots.get("quotas", read)


@ROUTER.get("/quotas/{owner}", response_model=models.QuotaRow)
def show_quota(site: Here, owner: OwnerName) -> Document:
    """Return the weight and the quotas of an owner; the defaults where none were set."""
    try:
        return _quota(priorities.quota(owner, root=site.workspace.paths.root))
    except BadInput as refusal:
        raise NotFound(refusal.where, refusal.must, refusal.got, refusal.remedy) from None


def _quota(owner: Owner) -> Document:
    return {
        "owner": owner.name,
        "weight": owner.weight / UNIT,
        "share": owner.most_share / UNIT,
        "gpu_hours": owner.most_gpu_hours,
        "used_gpu_hours": owner.week_gpu_seconds / 3600.0,
        "sweeps": owner.most_sweeps,
    }
