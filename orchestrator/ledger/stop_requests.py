"""Requests to stop a sweep, kept in the ledger so that any machine that reaches the ledger can make one.

A request holds until a person starts the sweep again, whose driver deletes it. A driver that a batch system
starts anew obeys it.
"""

from __future__ import annotations

from sqlalchemy import bindparam, delete, insert, select

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.tables import STOP_REQUEST

_ASKER = select(STOP_REQUEST.c.asker).where(STOP_REQUEST.c.sweep_id == bindparam("sweep_id"))


def ask_to_stop(ledger: Ledger, sweep_id: str) -> None:
    """Ask the driver of a sweep to save every trial and to leave; replace an earlier request."""

    def ask() -> None:
        with ledger.writer() as connection, connection.begin():
            connection.execute(delete(STOP_REQUEST).where(STOP_REQUEST.c.sweep_id == sweep_id))
            request = {"sweep_id": sweep_id, "asker": ledger.system.host(), "at": ledger.now()}
            connection.execute(insert(STOP_REQUEST).values(**request))

    ledger.retried(ask)


def asked_to_stop(ledger: Ledger, sweep_id: str) -> str | None:
    """Return the name of the machine that asked a sweep to stop, or None if none has."""
    askers = ledger.retried(lambda: ledger.read(_ASKER, {"sweep_id": sweep_id}))
    return str(askers[0][0]) if askers else None
