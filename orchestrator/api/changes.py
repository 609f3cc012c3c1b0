"""How the specification of a sweep differs from that of the previous sweep of the same file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.api.workspace import Workspace, one_of
from orchestrator.driver.admission import differences
from orchestrator.ledger import submissions
from orchestrator.ledger.known import earlier_of_file, known_sweeps
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
        sweep_id = one_of(known_sweeps(ledger), name)
        own = _document(ledger, sweep_id)
        previous = earlier_of_file(ledger, sweep_id, own)
        if previous is None:
            return Changes(None, ())
        return Changes(previous, tuple(differences(_document(ledger, previous), own)))


def _document(ledger: Ledger, sweep_id: str) -> Mapping[str, Any]:
    """Return the specification of a sweep that has begun or was submitted."""
    record = ledger.sweep(sweep_id)
    if record is not None:
        return record.document
    submission = submissions.submission(ledger, sweep_id)
    assert submission is not None, "no sweep is ever forgotten"
    return submission.document
