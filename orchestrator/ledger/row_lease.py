"""The lease of a sweep in PostgreSQL: a row with a fencing token, which lives by the server's clock.

Whoever takes a lease raises its token, and every change that a driver makes compares the token it took: a
driver that was cut off and comes back can change nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from sqlalchemy import Connection, Float, Row, func, select, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

from orchestrator.ledger.holder import Holder, busy
from orchestrator.ledger.tables import LEASE

LIFE_SECONDS = 45.0
RENEW_SECONDS = 1.0
"""So often that whoever wants the lease sees within two seconds whether its holder lives."""

GLANCE_SECONDS = 0.25
SILENT_GLANCES = 8
LEAVE_SECONDS = 10.0

Connect = Callable[[], Connection]
Held: TypeAlias = Row[tuple[int, str, float, bool]]
"""Token, holder, when it ends by the server's clock, and whether it has not ended."""

_NOW = func.extract("epoch", func.clock_timestamp()).cast(Float(53))


class RowLease:
    """A row of the lease table, renewed by a thread while it is held.

    Attributes:
        token: what this holder's changes are compared with; 0 before it is taken.
        lost: whether another driver has taken over.
    """

    def __init__(self, connect: Connect, sweep_id: str, waiting: Callable[[str], None] | None = None) -> None:
        self._connect, self._sweep_id, self._waiting = connect, sweep_id, waiting
        self.token = 0
        self.lost = False
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease-{sweep_id}", daemon=True)

    def take(self) -> None:
        """Take the row.

        Raises:
            Busy: a driver holds it that lives, or may live.
        """
        row = self._try()
        if row is not None and self._waiting is not None and not _can_be_seen(row):
            row = self._outwait(row, self._waiting)
        if row is not None:
            raise busy(self._sweep_id, Holder.read(row.holder))
        self._thread.start()

    def _outwait(self, found: Held, say: Callable[[str], None]) -> Held | None:
        """Wait until the lease of a machine that was lost ends; return the row if it is renewed instead."""
        glances = 0
        while True:
            time.sleep(GLANCE_SECONDS)
            row = self._try()
            if row is None or row.expires_at != found.expires_at:
                return row
            glances += 1
            if glances == SILENT_GLANCES:
                who = Holder.read(row.holder) or "Another driver"
                say(f"{who} is silent: waiting until its lease ends, {LIFE_SECONDS:g} s at most.")

    def _try(self) -> Held | None:
        """Take the row and return None, or return it as another one holds it."""
        with self._connect() as connection, connection.begin():
            row = _locked_row(connection, self._sweep_id)
            other = Holder.read(row.holder)
            if row.alive and not (other is not None and other.is_dead()):
                return row
            self.token = row.token + 1
            mine = Holder.here().write()
            self._set(connection, token=self.token, holder=mine, expires_at=_NOW + LIFE_SECONDS)
            return None

    def release(self) -> None:
        """Let the row expire now."""
        self._released.set()
        self._thread.join(LEAVE_SECONDS)
        with self._connect() as connection, connection.begin():
            self._renew(connection, 0.0)

    def _keep(self) -> None:
        while not self._released.wait(RENEW_SECONDS) and not self.lost:
            try:
                with self._connect() as connection, connection.begin():
                    self.lost = not self._renew(connection, LIFE_SECONDS)
            except DBAPIError:
                continue  # the server is away; the row outlives three renewals, and the token the row

    def _renew(self, connection: Connection, seconds: float) -> bool:
        mine = (LEASE.c.sweep_id == self._sweep_id) & (LEASE.c.token == self.token)
        renewed = update(LEASE).where(mine).values(expires_at=_NOW + seconds)
        return connection.execute(renewed).rowcount == 1

    def _set(self, connection: Connection, **columns: object) -> None:
        connection.execute(update(LEASE).where(LEASE.c.sweep_id == self._sweep_id).values(**columns))


def holder(connect: Connect, sweep_id: str) -> Holder | None:
    """Return who holds the lease of a sweep, or None if nobody does."""
    query = select(LEASE.c.holder).where(LEASE.c.sweep_id == sweep_id, LEASE.c.expires_at > _NOW)
    with connect() as connection:
        text = connection.execute(query).scalar_one_or_none()
    found = None if text is None else Holder.read(text)
    return None if found is None or found.is_dead() else found


def holds(connection: Connection, sweep_id: str, token: int) -> bool:
    """Tell whether `token` still is the newest, and keep it so until the transaction ends."""
    newest = select(LEASE.c.token).where(LEASE.c.sweep_id == sweep_id).with_for_update(read=True)
    return connection.execute(newest).scalar_one_or_none() == token


def _can_be_seen(row: Held) -> bool:
    """Tell whether the holder runs on this machine, where its death would be known."""
    named = Holder.read(row.holder)
    return named is not None and named.is_near()


def _locked_row(connection: Connection, sweep_id: str) -> Held:
    empty = {"sweep_id": sweep_id, "token": 0, "holder": "", "expires_at": 0.0}
    connection.execute(postgresql.insert(LEASE).values(**empty).on_conflict_do_nothing())
    alive = (LEASE.c.expires_at > _NOW).label("alive")
    query = select(LEASE.c.token, LEASE.c.holder, LEASE.c.expires_at, alive).where(
        LEASE.c.sweep_id == sweep_id
    )
    return connection.execute(query.with_for_update()).one()
