"""Which sweeps a ledger knows, without reading them.

The document, the facts and the file of a sweep take tens of kilobytes. A look for an id must not
read those of every sweep: time and memory would grow with each sweep that has ever run.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.tables import SUBMISSION, SWEEP

_BEGUN = select(SWEEP.c.id, SWEEP.c.created_at).order_by(SWEEP.c.created_at, SWEEP.c.id)
_SUBMITTED = select(SUBMISSION.c.sweep_id, SUBMISSION.c.at, SUBMISSION.c.owner).order_by(
    SUBMISSION.c.at, SUBMISSION.c.sweep_id
)


@dataclass(frozen=True)
class KnownSweep:
    """A sweep that has begun, or was submitted.

    Attributes:
        since: when it began, or else when it was submitted, seconds since the epoch.
        has_begun: whether a driver has written it to the ledger.
        owner: who has submitted it, or None if nobody has.
    """

    since: float
    has_begun: bool
    owner: str | None


def begun(ledger: Ledger) -> list[str]:
    """Return the ids of all sweeps that have begun, the oldest first."""
    return [sweep_id for sweep_id, known in known_sweeps(ledger).items() if known.has_begun]


def known_sweeps(ledger: Ledger) -> dict[str, KnownSweep]:
    """Return every sweep by its id: those that have begun, and then the others, the oldest first."""

    def read() -> dict[str, KnownSweep]:
        with ledger.reader() as connection:
            begun = {row.id: row.created_at for row in connection.execute(_BEGUN)}
            submitted = {row.sweep_id: row for row in connection.execute(_SUBMITTED)}
        known = {
            sweep_id: KnownSweep(at, True, submitted[sweep_id].owner if sweep_id in submitted else None)
            for sweep_id, at in begun.items()
        }
        waiting = {
            sweep_id: KnownSweep(row.at, False, row.owner)
            for sweep_id, row in submitted.items()
            if sweep_id not in begun
        }
        return {**known, **waiting}

    return ledger.retried(read)
