"""The routes that read: sweeps, trials, curves, logs, reports, the queue and quotas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import FileResponse

from orchestrator.api import live, queue, status
from orchestrator.api.sweep import Sweep
from orchestrator.ledger import claims, submissions
from orchestrator.ledger.keys import trial_key
from orchestrator.ledger.records import TrialRecord
from orchestrator.sharing.rows import UNIT
from orchestrator.web import documents
from orchestrator.web.access import SignedIn
from orchestrator.web.guard import REPORT_POLICY
from orchestrator.web.problems import NotFound
from orchestrator.web.site import Here, Site

ROUTER = APIRouter()

Document = dict[str, Any]
SweepId = Annotated[str, Path(description="Whole id of a sweep.", max_length=200)]
LogStart = Annotated[int | None, Query(ge=0, description="Offset in bytes; the end of the log if left out.")]
LogLength = Annotated[int, Query(ge=1, le=documents.MOST_LOG_BYTES, description="Bytes to return.")]
TrialSort = Literal["number", "state", "value", "step", "attempts", "created_at", "finished_at"]

LOG_BYTES = 65_536
"""Bytes of a log in one answer by default."""

ARTIFACTS = {
    "report.html": "text/html",
    "report.md": "text/markdown",
    "leaderboard.csv": "text/csv",
    "hidden_norms.html": "text/html",
}
"""The files of a report that can be read, and their types."""


@ROUTER.get("/healthz")
async def health() -> Document:
    """Return that the server answers."""
    return {"status": "ok"}


@ROUTER.get("/readyz")
def ready(site: Here) -> Document:
    """Return that the ledger answers too."""
    site.users()
    return {"status": "ok"}


@ROUTER.get("/me")
def me(user: SignedIn) -> Document:
    """Return the user of the token."""
    return asdict(user)


@ROUTER.get("/sweeps")
def list_sweeps(
    site: Here,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Document:
    """Return the sweeps, the newest first."""

    def read() -> list[Document]:
        rows = status.sweeps(root=site.workspace.paths.root)
        owners = site.known()
        return [documents.overview(row, owners.get(row.id)) for row in reversed(rows)]

    rows = site.snapshots.get("sweeps", read)
    return {"total": len(rows), "offset": offset, "sweeps": rows[offset : offset + limit]}


@ROUTER.get("/sweeps/{sweep_id}")
def show_sweep(site: Here, sweep_id: SweepId) -> Document:
    """Return the state of a sweep, its progress, its failures and its file."""

    def read() -> Document:
        with site.ledger() as ledger:
            submission = submissions.submission(ledger, sweep_id)
            record = ledger.sweep(sweep_id)
        recorded = str(record.facts.get("specification", "")) if record else ""
        now = status.status(sweep_id, root=site.workspace.paths.root)
        return documents.sweep(now, submission, submission.text if submission else recorded)

    return site.snapshots.get(("sweep", sweep_id), read)


@ROUTER.get("/sweeps/{sweep_id}/live")
def show_live(site: Here, sweep_id: SweepId) -> Document:
    """Return what a sweep does now: its running trials, its best values, its place in the queue."""
    root = site.workspace.paths.root
    return site.snapshots.get(("live", sweep_id), lambda: live.live(sweep_id, root=root).document())


@ROUTER.get("/sweeps/{sweep_id}/trials")
def list_trials(
    site: Here,
    sweep_id: SweepId,
    sort: TrialSort = "number",
    descending: bool = False,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Document:
    """Return one page of the trials of a sweep."""
    trials = trials_of(site, sweep_id)
    return documents.trial_page(trials, sort, descending=descending, offset=offset, limit=limit)


def trials_of(site: Site, sweep_id: str) -> Sequence[TrialRecord]:
    """Return the trials of a sweep as they were at most a second ago."""

    def read() -> Sequence[TrialRecord]:
        with site.ledger() as ledger:
            return ledger.trials(sweep_id)

    return site.snapshots.get(("trials", sweep_id), read)


@ROUTER.get("/sweeps/{sweep_id}/curves")
def show_curves(
    site: Here,
    sweep_id: SweepId,
    metric: Annotated[str | None, Query(description="What the sweep optimises, if left out.")] = None,
    trials: Annotated[int, Query(ge=1, le=50)] = 20,
    points: Annotated[int, Query(ge=2, le=1000)] = 500,
) -> Document:
    """Return the learning curves of the running and of the best trials."""

    def read() -> Document:
        with site.ledger() as ledger:
            record = ledger.sweep(sweep_id)
            if record is None:
                return {"metric": metric, "total": 0, "curves": []}
            chosen = metric or str(record.facts["metric"])
            return documents.curves(
                ledger.curves(sweep_id, [chosen]),
                ledger.trials(sweep_id),
                chosen,
                maximize=record.facts["direction"] == "maximize",
                most_trials=trials,
                most_points=points,
            )

    return site.snapshots.get(("curves", sweep_id, metric, trials, points), read)


@ROUTER.get("/sweeps/{sweep_id}/log")
def read_log(
    site: Here, sweep_id: SweepId, start: LogStart = None, length: LogLength = LOG_BYTES
) -> Document:
    """Return a part of what the drivers of a sweep have printed."""
    return documents.log_range(site.workspace.paths.driver_log(sweep_id), start, length)


@ROUTER.get("/sweeps/{sweep_id}/trials/{number}/log")
def read_trial_log(
    site: Here,
    sweep_id: SweepId,
    number: Annotated[int, Path(ge=0)],
    start: LogStart = None,
    length: LogLength = LOG_BYTES,
) -> Document:
    """Return a part of what the workers of a trial have printed on the machine of the service."""
    log = site.workspace.paths.log(sweep_id, trial_key(sweep_id, number))
    return documents.log_range(log, start, length)


@ROUTER.get("/sweeps/{sweep_id}/file")
def show_file(site: Here, sweep_id: SweepId) -> Response:
    """Return the search-space file of a sweep as it was submitted."""
    return Response(show_sweep(site, sweep_id)["text"], media_type="application/yaml")


@ROUTER.get("/sweeps/{sweep_id}/report")
def report(site: Here, sweep_id: SweepId) -> Response:
    """Return the report of a sweep as it stands, one HTML file."""

    def write() -> FilePath:
        return Sweep.find(sweep_id, root=site.workspace.paths.root).report().html

    return _file(site.snapshots.get(("report", sweep_id), write))


@ROUTER.get("/sweeps/{sweep_id}/artifacts")
def list_artifacts(site: Here, sweep_id: SweepId) -> Document:
    """Return the names and sizes of the files of the report that was written last."""
    folder = site.workspace.paths.report(sweep_id)
    files = [folder / name for name in ARTIFACTS if (folder / name).exists()]
    return {"artifacts": [{"name": file.name, "bytes": file.stat().st_size} for file in files]}


@ROUTER.get("/sweeps/{sweep_id}/artifacts/{name}")
def read_artifact(site: Here, sweep_id: SweepId, name: str) -> Response:
    """Return a file of the report that was written last."""
    file = site.workspace.paths.report(sweep_id) / name
    if name not in ARTIFACTS or not file.exists():
        remedy = "The list of artifacts names them; reading the report writes it."
        raise NotFound("artifact", "must be one of the list", repr(name), remedy)
    return _file(file)


def _file(file: FilePath) -> Response:
    return FileResponse(
        file, media_type=ARTIFACTS[file.name], headers={"Content-Security-Policy": REPORT_POLICY}
    )


@ROUTER.get("/queue")
def list_queue(site: Here) -> Document:
    """Return every sweep that runs or waits, with its share, its position and why it waits."""

    def read() -> Document:
        entries = queue.queue(root=site.workspace.paths.root)
        return {"queue": [entry.document() for entry in entries]}

    return site.snapshots.get("queue", read)


@ROUTER.get("/quotas")
def list_quotas(site: Here) -> Document:
    """Return the weight and the quotas of every owner for whom they were set."""

    def read() -> Document:
        with site.ledger() as ledger:
            owners = claims.owners(ledger)
        return {
            "quotas": [
                {
                    "owner": owner.name,
                    "weight": owner.weight / UNIT,
                    "share": owner.most_share / UNIT,
                    "gpu_hours": owner.most_gpu_hours,
                    "used_gpu_hours": owner.week_gpu_seconds / 3600.0,
                }
                for owner in owners.values()
            ]
        }

    return site.snapshots.get("quotas", read)
