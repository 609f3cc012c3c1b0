"""What people set of a sweep while it exists: its class, its weight, and whether it is paused.

A sweep is paused by a stop request, which a person has made and which holds until a person resumes the sweep
or submits it again: over the ends of its driver, of the service and of the machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace

from sqlalchemy import Connection, bindparam, delete, insert, select

from orchestrator.errors import BadInput, StaleRevision
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.queue.submissions import (
    QUEUED_ANEW,
    ROOM,
    QueueTransaction,
    change_rows,
    check_quota,
)
from orchestrator.ledger.row_backup import renew
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP
from orchestrator.ledger.tables import PRIORITY, STOP_REQUEST, SUBMISSION, SWEEP
from orchestrator.sharing.pool_rows import UNIT, PriorityClass


@dataclass(frozen=True)
class QueueSettings:
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


def settings(ledger: Ledger, sweep_id: str) -> QueueSettings:
    """Return what was set of a sweep; the defaults where nothing was."""

    def read() -> QueueSettings:
        with ledger.reader() as connection:
            return read_settings(connection, sweep_id)

    return ledger.retried(read)


def read_settings(connection: Connection, sweep_id: str) -> QueueSettings:
    """Return what was set of a sweep, in a transaction."""
    priority = connection.execute(select(PRIORITY).where(PRIORITY.c.sweep_id == sweep_id)).one_or_none()
    query = select(STOP_REQUEST.c.asker).where(STOP_REQUEST.c.sweep_id == sweep_id)
    paused = connection.execute(query).scalar_one_or_none() not in {None, ROOM}
    if priority is None:
        return QueueSettings(paused=paused)
    return QueueSettings(priority.priority_class, priority.weight, paused)


def locked_settings(connection: Connection, sweep_id: str) -> QueueSettings:
    """Return what was set of a sweep; until the transaction ends, no other one that locks it reads it."""
    for column in (SUBMISSION.c.sweep_id, SWEEP.c.id):  # a setting that has its default has no row to lock
        connection.execute(select(column).where(column == sweep_id).with_for_update())
    return read_settings(connection, sweep_id)


def change_settings(
    ledger: Ledger,
    sweep_id: str,
    *,
    priority_class: PriorityClass | None = None,
    weight: int | None = None,
    paused: bool | None = None,
    revisions: Collection[str] | None = None,
    asked: Asked | None = None,
) -> QueueSettings:
    """Change what is given of the settings of a sweep, in one transaction; return all of them.

    Args:
        ledger: of the sweep.
        sweep_id: of the sweep, whether or not it runs now.
        priority_class: `urgent`, `normal` or `idle`.
        weight: among the owner's sweeps, in 1/10,000.
        paused: true to have its driver save every trial and leave; false to queue it again.
        revisions: of the settings that may be changed, one of which must hold; None for any.
        asked: who asks for it, for the audit log; None for no entry.

    Raises:
        BadInput: the sweep is to be paused and neither waits nor runs, or is to be resumed and has ended.
        OverQuota: it is to be resumed, and as many sweeps of its owner wait or run as a quota allows.
        StaleRevision: the settings have none of the revisions.
    """

    def write(change: QueueTransaction) -> QueueSettings:
        connection = change.connection
        old = locked_settings(connection, sweep_id)
        if revisions is not None and old.revision not in revisions:
            remedy = "Read it again, and decide anew."
            raise StaleRevision(sweep_id, f"must be at revision {', '.join(revisions)}", old.revision, remedy)
        new = replace(old, priority_class=priority_class or old.priority_class, weight=weight or old.weight)
        if priority_class is not None or weight is not None:
            connection.execute(delete(PRIORITY).where(PRIORITY.c.sweep_id == sweep_id))
            row = {"sweep_id": sweep_id, "priority_class": new.priority_class, "weight": new.weight}
            connection.execute(insert(PRIORITY).values(**row))
        if paused is not None and paused != old.paused:
            if paused:
                _pause(change, sweep_id, ledger)
            else:
                _resume(change, sweep_id)
            new = replace(new, paused=paused)
        if asked is not None:
            asked.note(connection, ledger.now())
        return new

    return _acknowledged(ledger, sweep_id, change_rows(ledger, write))


def resume(ledger: Ledger, sweep_id: str, *, asked: Asked | None = None) -> QueueSettings:
    """Queue a paused sweep again, or let its driver go on if it has not left; return all settings.

    Args:
        ledger: of the sweep.
        sweep_id: of the sweep.
        asked: who asks for it, for the audit log; None for no entry.

    Raises:
        BadInput: the sweep is not paused, or has ended.
        OverQuota: as many sweeps of its owner wait or run as a quota allows.
    """

    def write(change: QueueTransaction) -> QueueSettings:
        old = locked_settings(change.connection, sweep_id)
        if not old.paused:
            remedy = "`status` shows the state of a sweep."
            raise BadInput(sweep_id, "must be paused to be resumed", "one that is not", remedy)
        _resume(change, sweep_id)
        if asked is not None:
            asked.note(change.connection, ledger.now())
        return replace(old, paused=False)

    return _acknowledged(ledger, sweep_id, change_rows(ledger, write))


def _acknowledged(ledger: Ledger, sweep_id: str, written: QueueSettings) -> QueueSettings:
    """Return the settings once the backup has what was committed."""
    for table in (PRIORITY, STOP_REQUEST):
        renew(ledger, table, sweep_id)
    ledger.flush()
    return written


def _pause(change: QueueTransaction, sweep_id: str, ledger: Ledger) -> None:
    query = select(SUBMISSION.c.state).where(SUBMISSION.c.sweep_id == sweep_id)
    state = change.connection.execute(query).scalar_one_or_none()
    if state not in {"QUEUED", "STARTED"}:
        must = "must wait or run in the service to be paused"
        raise BadInput(sweep_id, must, state or "no submission", "`queue` shows what waits and runs.")
    change.connection.execute(delete(STOP_REQUEST).where(STOP_REQUEST.c.sweep_id == sweep_id))
    request = {"sweep_id": sweep_id, "asker": ledger.system.host(), "at": ledger.now()}
    change.connection.execute(insert(STOP_REQUEST).values(**request))


def _resume(change: QueueTransaction, sweep_id: str) -> None:
    """Withdraw the request, and queue a submission that has ended for it.

    The submission counts as changed even if its driver has not left: the service must not end it for a
    request that it has read before.
    """
    connection = change.connection
    sweep = connection.execute(select(SWEEP.c.state).where(SWEEP.c.id == sweep_id)).scalar_one_or_none()
    if sweep in FINISHED_SWEEP:
        raise BadInput(sweep_id, "must not have ended to be resumed", str(sweep), "Extend it to go on.")
    query = select(SUBMISSION.c.state, SUBMISSION.c.owner).where(SUBMISSION.c.sweep_id == sweep_id)
    row = connection.execute(query).one_or_none()
    if row is None:
        must, remedy = "must be a sweep of the service to be resumed", "Retry it: that submits it."
        raise BadInput(sweep_id, must, "no submission", remedy)
    if row.state == "ENDED":
        check_quota(connection, row.owner, sweep_id)
    connection.execute(delete(STOP_REQUEST).where(STOP_REQUEST.c.sweep_id == sweep_id))
    change.update(SUBMISSION.c.sweep_id == sweep_id, **(QUEUED_ANEW if row.state == "ENDED" else {}))


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
