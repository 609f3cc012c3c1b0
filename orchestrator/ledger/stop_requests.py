"""Requests to stop a sweep, kept in the ledger so that any machine that reaches the ledger can make one.

A request of a person holds until a person starts the sweep again, whose driver deletes it. A driver that a
batch system starts anew obeys it. The service asks in the name `ROOM`, and deletes its request when it queues
the sweep again.
"""

from __future__ import annotations

from sqlalchemy import bindparam, delete, insert, select

from orchestrator.ledger.audit import Asked
from orchestrator.ledger.decision_backup import renew
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.tables import STOP_REQUEST

ROOM = "room for other sweeps"
"""The asker of a request by which the service takes a driver's place; the sweep is then queued again."""

_ASKER = select(STOP_REQUEST.c.asker).where(STOP_REQUEST.c.sweep_id == bindparam("sweep_id"))


def ask_to_stop(ledger: Ledger, sweep_id: str, *, asked: Asked | None = None) -> None:
    """Ask the driver of a sweep to save every trial and to leave; replace an earlier request.

    Args:
        ledger: of the sweep.
        sweep_id: of the sweep.
        asked: who asks for it, for the audit log; None for no entry.
    """

    def ask() -> None:
        with ledger.writer() as connection, connection.begin():
            connection.execute(delete(STOP_REQUEST).where(STOP_REQUEST.c.sweep_id == sweep_id))
            request = {"sweep_id": sweep_id, "asker": ledger.system.host(), "at": ledger.now()}
            connection.execute(insert(STOP_REQUEST).values(**request))
            if asked is not None:
                asked.note(connection, ledger.now())

    ledger.retried(ask)
    renew(ledger, STOP_REQUEST, sweep_id)


def asked_to_stop(ledger: Ledger, sweep_id: str) -> str | None:
    """Return the name of the machine that asked a sweep to stop, `ROOM`, or None if nobody has."""
    askers = ledger.retried(lambda: ledger.read(_ASKER, {"sweep_id": sweep_id}))
    return str(askers[0][0]) if askers else None


def reason_of(asker: str) -> str:
    """Return why a sweep ends that was asked to stop, for people."""
    return "its driver made room for other sweeps" if asker == ROOM else f"stopped by `stop` on {asker}"
