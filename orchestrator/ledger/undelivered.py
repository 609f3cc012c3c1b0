"""Submitted sweeps that have ended with events that MLflow has not taken."""

from __future__ import annotations

from sqlalchemy import ColumnElement, exists, select

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.tables import OUTBOX, SUBMISSION

_PENDING = exists().where(OUTBOX.c.sweep_id == SUBMISSION.c.sweep_id, ~OUTBOX.c.delivered)


def left_undelivered(ledger: Ledger) -> list[str]:
    """Return the submitted sweeps that have ended and left events pending; the oldest first.

    No process may deliver them: a sweep that is submitted again, or still saves, is not among them.
    """
    return _ended(ledger, _PENDING)


def has_ended(ledger: Ledger, sweep_id: str) -> bool:
    """Return True if a submitted sweep has ended and was not submitted again since."""
    return bool(_ended(ledger, SUBMISSION.c.sweep_id == sweep_id))


def _ended(ledger: Ledger, condition: ColumnElement[bool]) -> list[str]:
    chosen = (
        select(SUBMISSION.c.sweep_id)
        .where(SUBMISSION.c.state == "ENDED", condition)
        .order_by(SUBMISSION.c.at, SUBMISSION.c.sweep_id)
    )

    def read() -> list[str]:
        with ledger.reader() as connection:
            return list(connection.execute(chosen).scalars())

    return ledger.retried(read)
