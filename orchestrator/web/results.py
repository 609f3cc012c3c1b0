"""The routes that return texts and files: logs, the search-space file, reports and their artifacts."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import FileResponse

from orchestrator.api.local_sweep import Sweep
from orchestrator.ledger.sweeps.records import trial_key
from orchestrator.web import documents, models
from orchestrator.web.paging import MOST_WHOLE
from orchestrator.web.problems import NotFound
from orchestrator.web.reading import Document, SweepId, sweep_document
from orchestrator.web.site import Here
from orchestrator.web.trials import Number, TrialRole

ROUTER = APIRouter()

LogStart = Annotated[
    int | None, Query(ge=0, le=MOST_WHOLE, description="Offset in bytes; the end of the log if left out.")
]
LogLength = Annotated[int, Query(ge=1, le=documents.MOST_LOG_BYTES, description="Bytes to return.")]

_HEAD_BYTES = 1_000
_DIGESTS = re.compile(
    rb"""<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src """
    rb"""('sha256-[A-Za-z0-9+/]{43}='(?: 'sha256-[A-Za-z0-9+/]{43}=')*);"""
)
"""The digests of its scripts in the head of a report (`orchestrator/report/templates/page.html`)."""

LOG_BYTES = 65_536
"""Bytes of a log in one answer by default."""

ARTIFACTS = {
    "report.html": "text/html",
    "report.md": "text/markdown",
    "leaderboard.csv": "text/csv",
    "hidden_norms.html": "text/html",
}
"""The files of a report that can be read, and their types."""


@ROUTER.get("/sweeps/{sweep_id}/log", response_model=models.LogPart)
def read_log(
    site: Here, sweep_id: SweepId, start: LogStart = None, length: LogLength = LOG_BYTES
) -> Document:
    """Return a part of what the drivers of a sweep have printed."""
    return asdict(site.backend.log(sweep_id, start, length))


@ROUTER.get("/sweeps/{sweep_id}/trials/{number}/log", response_model=models.LogPart)
def read_trial_log(
    site: Here,
    sweep_id: SweepId,
    number: Number,
    role: TrialRole = "search",
    start: LogStart = None,
    length: LogLength = LOG_BYTES,
) -> Document:
    """Return a part of what the workers of a trial have printed on the machine of the service."""
    log = site.workspace.paths.log(sweep_id, trial_key(sweep_id, number, role))
    return documents.log_range(log, start, length)


@ROUTER.get("/sweeps/{sweep_id}/file", response_class=Response)
def show_file(site: Here, sweep_id: SweepId) -> Response:
    """Return the search-space file of a sweep as it was submitted."""
    return Response(sweep_document(site, sweep_id)["text"], media_type="application/yaml")


@ROUTER.get("/sweeps/{sweep_id}/report", response_class=Response)
def report(site: Here, sweep_id: SweepId) -> Response:
    """Return the report of a sweep as it stands, one HTML file."""

    def write() -> FilePath:
        return Sweep.find(sweep_id, root=site.workspace.paths.root).report().html

    return _file(site.snapshots.get(("report", sweep_id), write))


@ROUTER.get("/sweeps/{sweep_id}/artifacts", response_model=models.Artifacts)
def list_artifacts(site: Here, sweep_id: SweepId) -> Document:
    """Return the names and sizes of the files of the report that was written last."""
    folder = site.workspace.paths.report(sweep_id)
    files = [folder / name for name in ARTIFACTS if (folder / name).exists()]
    return {"artifacts": [{"name": file.name, "bytes": file.stat().st_size} for file in files]}


@ROUTER.get("/sweeps/{sweep_id}/artifacts/{name}", response_class=Response)
def read_artifact(site: Here, sweep_id: SweepId, name: str) -> Response:
    """Return a file of the report that was written last."""
    file = site.workspace.paths.report(sweep_id) / name
    if name not in ARTIFACTS or not file.exists():
        remedy = "The list of artifacts names them; reading the report writes it."
        raise NotFound("artifact", "must be one of the list", repr(name), remedy)
    return _file(file)


def _file(file: FilePath) -> Response:
    with file.open("rb") as opened:
        policy = report_policy(opened.read(_HEAD_BYTES))
    return FileResponse(file, media_type=ARTIFACTS[file.name], headers={"Content-Security-Policy": policy})


def report_policy(head: bytes) -> str:
    """Return the Content-Security-Policy of a file of a report: a sandbox, without the cookie or a network.

    The only scripts that run are those whose SHA-256 digests the page names in its head. It precedes every
    text of the sweep; a file without such digests runs none.

    Args:
        head: how the file begins.
    """
    found = _DIGESTS.search(head)
    digests = found[1].decode() if found else "'none'"
    return (
        f"sandbox allow-scripts; default-src 'none'; script-src {digests}; style-src 'unsafe-inline';"
        " img-src data: blob:; frame-ancestors 'none'"
    )
