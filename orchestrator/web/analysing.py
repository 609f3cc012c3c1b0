"""The routes that compare and summarise: what a sweep has learned and spent, and how its file has changed."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from orchestrator.api.local_sweep import Sweep
from orchestrator.api.status import changes
from orchestrator.web import models
from orchestrator.web.reading import Document, SweepId
from orchestrator.web.site import Here

ROUTER = APIRouter()

FRESH_SECONDS = 30.0
"""Age of an analysis up to which it answers a request: it reads every report of the sweep."""


@ROUTER.get("/sweeps/{sweep_id}/analysis", response_model=models.AnalysisDocument)
def analysis(site: Here, sweep_id: SweepId) -> Document:
    """Return the importances of hyperparameters, where the time went, and hidden norms of the best trial."""

    def make() -> Document:
        found = Sweep.find(sweep_id, root=site.workspace.paths.root).analysis()
        return {
            "importances": [asdict(importance) for importance in found.importances],
            "seconds": found.spent.parts(),
            "best": found.best,
            "norms": [{"metric": name, "points": points} for name, points in sorted(found.norms.items())],
        }

    return site.snapshots.get(("analysis", sweep_id), make, fresh=FRESH_SECONDS)


@ROUTER.get("/sweeps/{sweep_id}/changes", response_model=models.ChangesDocument)
def show_changes(site: Here, sweep_id: SweepId) -> Document:
    """Return what differs from the previous sweep of the same file and profile."""

    def make() -> Document:
        found = changes(sweep_id, root=site.workspace.paths.root)
        return {"previous": found.previous, "differences": list(found.differences)}

    return site.snapshots.get(("changes", sweep_id), make)
