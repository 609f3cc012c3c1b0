"""The wish that a sweep be stopped: a row of the ledger, so that it needs nothing else to be shared.

It is told to the driver of the moment: the next one begins by forgetting it.
"""

from __future__ import annotations

import socket

from sqlalchemy import delete, insert, select

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.retry import patiently
from orchestrator.ledger.tables import WISH


def ask_to_stop(ledger: Ledger, sweep_id: str) -> None:
    """Ask the driver of a sweep to save every trial and leave."""

    def ask() -> None:
        with ledger.writing() as connection, connection.begin():
            connection.execute(delete(WISH).where(WISH.c.sweep_id == sweep_id))
            connection.execute(insert(WISH).values(sweep_id=sweep_id, asker=socket.gethostname()))

    patiently(ask, ledger.where)


def asked_to_stop(ledger: Ledger, sweep_id: str) -> str | None:
    """Return the machine from which somebody asked a sweep to stop, or None."""

    def look() -> str | None:
        with ledger.reading() as connection:
            return connection.execute(
                select(WISH.c.asker).where(WISH.c.sweep_id == sweep_id)
            ).scalar_one_or_none()

    return patiently(look, ledger.where)


def forget(ledger: Ledger, sweep_id: str) -> None:
    """Forget what the driver before was asked; to be called under the lease."""

    def drop() -> None:
        with ledger.writing() as connection, connection.begin():
            connection.execute(delete(WISH).where(WISH.c.sweep_id == sweep_id))

    patiently(drop, ledger.where)
