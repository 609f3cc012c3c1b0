"""How the specification of a sweep differs from that of the previous sweep of the same file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.api.workspace import Workspace, one_of
from orchestrator.config.sweep_config import current
from orchestrator.driver.admission import differences
from orchestrator.ledger import submissions
from orchestrator.ledger.ledger import Ledger


@dataclass(frozen=True)
class Changes:
    """How a sweep differs from the previous one of the same file and profile.

    Attributes:
        previous: id of the previous sweep, or None if there is none.
        differences: one phrase for each field that differs, such as `training.steps 600 -> 800`.
    """

    previous: str | None
    differences: Sequence[str]


def changes(name: str, *, root: str | Path | None = None) -> Changes:
    """Return how a sweep differs from the previous one of the same file and profile.

    Args:
        name: id of the sweep, or its beginning.
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: there is no ledger, or `name` does not name one sweep of it.
    """
    with Workspace.at(root).ledger() as ledger:
        documents = _documents(ledger)
    sweep_id = one_of(documents.keys(), name)
    own, earlier = documents[sweep_id], list(documents)[: list(documents).index(sweep_id)]
    same = [other for other in earlier if _file(documents[other]) == _file(own)]
    if not same:
        return Changes(None, ())
    return Changes(same[-1], tuple(differences(documents[same[-1]], current(own))))


def _documents(ledger: Ledger) -> dict[str, Mapping[str, Any]]:
    """Return the specification of every sweep that has begun or was submitted, the oldest first."""
    begun = {record.id: (record.created_at, record.document) for record in ledger.sweeps()}
    submitted = {entry.sweep_id: (entry.at, entry.document) for entry in submissions.submissions(ledger)}
    known = {**submitted, **begun}
    return {sweep_id: known[sweep_id][1] for sweep_id in sorted(known, key=lambda each: known[each][0])}


def _file(document: Mapping[str, Any]) -> tuple[Any, Any]:
    return document["name"], document.get("profile")
