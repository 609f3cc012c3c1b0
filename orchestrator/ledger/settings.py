"""What people set of a sweep while it exists: its class, its weight, and whether it is paused.

A sweep is paused by a stop request, which a person has made and which holds until a person starts the sweep
again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy import Connection, select

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.stop_requests import ROOM
from orchestrator.ledger.tables import PRIORITY, STOP_REQUEST, SUBMISSION, SWEEP
from orchestrator.sharing.rows import UNIT, PriorityClass


@dataclass(frozen=True)
class Settings:
    """What people have set of a sweep.

    Attributes:
        priority_class: `urgent`, `normal` or `idle`.
        weight: among the owner's sweeps, in 1/10,000.
        paused: whether a stop request of a person holds.
    """

    priority_class: PriorityClass = "normal"
    weight: int = UNIT
    paused: bool = False

    @property
    def revision(self) -> str:
        """Return what identifies these values: equal for equal values."""
        text = f"{self.priority_class} {self.weight} {self.paused}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def settings(ledger: Ledger, sweep_id: str) -> Settings:
    """Return what was set of a sweep; the defaults where nothing was."""

    def read() -> Settings:
        with ledger.reader() as connection:
            return read_settings(connection, sweep_id)

    return ledger.retried(read)


def read_settings(connection: Connection, sweep_id: str) -> Settings:
    """Return what was set of a sweep, in a transaction."""
    priority = connection.execute(select(PRIORITY).where(PRIORITY.c.sweep_id == sweep_id)).one_or_none()
    query = select(STOP_REQUEST.c.asker).where(STOP_REQUEST.c.sweep_id == sweep_id)
    paused = connection.execute(query).scalar_one_or_none() not in {None, ROOM}
    if priority is None:
        return Settings(paused=paused)
    return Settings(priority.priority_class, priority.weight, paused)


def locked_settings(connection: Connection, sweep_id: str) -> Settings:
    """Return what was set of a sweep; until the transaction ends, no other one that locks it reads it."""
    for column in (SUBMISSION.c.sweep_id, SWEEP.c.id):  # a setting that has its default has no row to lock
        connection.execute(select(column).where(column == sweep_id).with_for_update())
    return read_settings(connection, sweep_id)
