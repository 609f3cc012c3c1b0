"""Routes of logs, search-space files, reports and their artifacts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import FileResponse

from orchestrator.api.loaded_sweep import LoadedSweep
from orchestrator.api.local import log_part
from orchestrator.api.local_trial import Trial
from orchestrator.client.answers import LogPart
from orchestrator.client.protocol import LOG_BYTES
from orchestrator.errors import NotFound
from orchestrator.ledger.sweeps.index import versions
from orchestrator.ledger.sweeps.records import trial_key
from orchestrator.web.app_state import App
from orchestrator.web.paging import MOST_WHOLE
from orchestrator.web.sweep_routes import SweepId, show_sweep
from orchestrator.web.trial_routes import Number, TrialRole

ROUTER = APIRouter()

MOST_LOG_BYTES = 262_144
"""Largest part of a log in bytes."""

LogStart = Annotated[
    int | None, Query(ge=0, le=MOST_WHOLE, description="Position in bytes; the end of the log by default.")
]
LogLength = Annotated[int, Query(ge=1, le=MOST_LOG_BYTES, description="Number of bytes.")]

_HEAD_BYTES = 1_000
_DIGESTS = re.compile(
    rb"""<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src """
    rb"""('sha256-[A-Za-z0-9+/]{43}='(?: 'sha256-[A-Za-z0-9+/]{43}=')*);"""
)
"""Digests of the scripts in the head of a report (`orchestrator/report/templates/page.html`)."""

ARTIFACTS = {
    "report.html": "text/html",
    "report.md": "text/markdown",
    "leaderboard.csv": "text/csv",
    "hidden_norms.html": "text/html",
}
"""Files of a report and their media types."""


@dataclass(frozen=True)
class Artifact:
    """File of a report."""

    name: str
    bytes: int


@dataclass(frozen=True)
class ArtifactList:
    """Files of the latest report."""

    artifacts: Sequence[Artifact]


@ROUTER.get("/sweeps/{sweep_id}/log")
def read_log(app: App, sweep_id: SweepId, start: LogStart = None, length: LogLength = LOG_BYTES) -> LogPart:
    """Read a part of the output of a sweep's drivers."""
    return app.backend.log(sweep_id, start, length)


@ROUTER.get("/sweeps/{sweep_id}/trials/{number}/log")
def read_trial_log(
    app: App,
    sweep_id: SweepId,
    number: Number,
    role: TrialRole = "search",
    start: LogStart = None,
    length: LogLength = LOG_BYTES,
) -> LogPart:
    """Read a part of the output of a trial's workers on the machine of the service."""
    trial = Trial.find(trial_key(sweep_id, number, role), root=app.workspace.paths.root)
    log = app.workspace.paths.log(sweep_id, trial.key)
    try:
        return log_part(log, tail_start(log, length) if start is None else start, length)
    except FileNotFoundError:
        remedy = "Logs of trials on other machines are in the folders there."
        raise NotFound("log", "is not on this machine", "", remedy) from None


def tail_start(log: Path, length: int) -> int:
    """Return the position of the last `length` bytes of a log, at the start of a character if possible."""
    with log.open("rb") as opened:
        begin = opened.seek(max(0, opened.seek(0, 2) - length))
        head = opened.read(4) if begin else b""
    return begin + next((at for at, byte in enumerate(head) if byte & 0xC0 != 0x80), 0)


@ROUTER.get("/sweeps/{sweep_id}/file", response_class=Response)
def show_file(app: App, sweep_id: SweepId) -> Response:
    """Show the submitted search-space file of a sweep."""
    return Response(show_sweep(app, sweep_id).text, media_type="application/yaml")


@ROUTER.get("/sweeps/{sweep_id}/report", response_class=Response)
def report(app: App, sweep_id: SweepId) -> Response:
    """Show the report of a sweep, one HTML file; an older one, with its time, if a new one takes long."""

    def write() -> Path:
        return LoadedSweep.find(sweep_id, root=app.workspace.paths.root).write_report().html

    with app.ledger() as ledger:
        version = versions(ledger).get(sweep_id)
    return _file(
        app.reports.get(sweep_id, version, app.workspace.paths.report(sweep_id) / "report.html", write)
    )


@ROUTER.get("/sweeps/{sweep_id}/artifacts")
def list_artifacts(app: App, sweep_id: SweepId) -> ArtifactList:
    """List the files of the latest report."""
    folder = app.workspace.paths.report(sweep_id)
    files = [folder / name for name in ARTIFACTS if (folder / name).exists()]
    return ArtifactList([Artifact(file.name, file.stat().st_size) for file in files])


@ROUTER.get("/sweeps/{sweep_id}/artifacts/{name}", response_class=Response)
def read_artifact(app: App, sweep_id: SweepId, name: str) -> Response:
    """Read a file of the latest report."""
    file = app.workspace.paths.report(sweep_id) / name
    if name not in ARTIFACTS or not file.exists():
        remedy = "Choose a file from the list of artifacts, which reading the report creates."
        raise NotFound("artifact", "does not exist", repr(name), remedy)
    return _file(file)


def _file(file: Path) -> Response:
    with file.open("rb") as opened:
        policy = report_policy(opened.read(_HEAD_BYTES))
    return FileResponse(file, media_type=ARTIFACTS[file.name], headers={"Content-Security-Policy": policy})


def report_policy(head: bytes) -> str:
    """Return the Content-Security-Policy of a report: a sandbox without cookies and network.

    Only scripts whose SHA-256 digests are in the head of the page run. The head precedes all texts of the
    sweep; a file without digests runs no scripts.

    Args:
        head: Beginning of the file.
    """
    found = _DIGESTS.search(head)
    digests = found[1].decode() if found else "'none'"
    return (
        f"sandbox allow-scripts; default-src 'none'; script-src {digests}; style-src 'unsafe-inline';"
        " img-src data: blob:; frame-ancestors 'none'"
    )
