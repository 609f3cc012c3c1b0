"""User-editable settings of a sweep: its class, its weight, and stop requests.

A stop request of a user holds until a user resumes, starts or submits the sweep again, whatever happens to
its driver, the service or the machine meanwhile. The service preempts a sweep by a request in the name
`ROOM`, which it deletes when it queues the sweep again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace

from sqlalchemy import Connection, bindparam, delete, insert, select

from orchestrator.errors import StaleRevision, WrongState
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.shelf import check_not_deleted
from orchestrator.ledger.queue.submissions import (
    QUEUED_AGAIN,
    ROOM,
    QueueTransaction,
    change_rows,
    check_quota,
)
from orchestrator.ledger.row_backup import renewing
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP
from orchestrator.ledger.tables import PRIORITY, STOP_REQUEST, SUBMISSION, SWEEP
from orchestrator.sharing.pool_rows import UNIT, PriorityClass

_ASKER = select(STOP_REQUEST.c.asker).where(STOP_REQUEST.c.sweep_id == bindparam("sweep_id"))


@dataclass(frozen=True)
class QueueSettings:
    """Settings of a sweep in the queue.

    Attributes:
        priority_class: `urgent`, `normal` or `idle`.
        weight: Weight among the owner's sweeps, in 1/10,000.
        paused: Whether a user has stopped the sweep.
    """

    priority_class: PriorityClass = "normal"
    weight: int = UNIT
    paused: bool = False

    @property
    def revision(self) -> str:
        """Digest of the values, equal for equal values."""
        text = f"{self.priority_class} {self.weight} {self.paused}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def settings(ledger: Ledger, sweep_id: str) -> QueueSettings:
    """Return the settings of a sweep, which may be the defaults."""
    return ledger.query(lambda connection: _settings(connection, sweep_id))


def change_settings(
    ledger: Ledger,
    sweep_id: str,
    *,
    priority_class: PriorityClass | None = None,
    weight: int | None = None,
    revisions: Collection[str] | None = None,
    asked: Asked | None = None,
) -> QueueSettings:
    """Change the given settings of a sweep, and return all of them.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep, whether or not it runs now.
        priority_class: `urgent`, `normal` or `idle`.
        weight: Weight among the owner's sweeps, in 1/10,000.
        revisions: Revisions of the settings that may be changed; None for any.
        asked: Entry for the audit log, if any.

    Raises:
        StaleRevision: The settings have none of the revisions.
    """

    def write(change: QueueTransaction) -> QueueSettings:
        connection = change.connection
        old = _locked_settings(connection, sweep_id)
        if revisions is not None and old.revision not in revisions:
            must = f"has changed since revision {', '.join(revisions)}; it is at revision {old.revision}"
            raise StaleRevision(sweep_id, must, "", "Reload it, and try again.")
        new = replace(old, priority_class=priority_class or old.priority_class, weight=weight or old.weight)
        if priority_class is not None or weight is not None:
            connection.execute(delete(PRIORITY).where(PRIORITY.c.sweep_id == sweep_id))
            row = {"sweep_id": sweep_id, "priority_class": new.priority_class, "weight": new.weight}
            connection.execute(insert(PRIORITY).values(**row))
        if asked is not None:
            asked.note(connection, ledger.now())
        return new

    with renewing(ledger, PRIORITY, sweep_id):
        return change_rows(ledger, write)


def ask_to_stop(ledger: Ledger, sweep_id: str, *, asked: Asked | None = None) -> None:
    """Request that the driver of a sweep saves every trial and ends; replace an earlier request.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep.
        asked: Entry for the audit log, if any.
    """

    def ask(connection: Connection) -> None:
        connection.execute(delete(STOP_REQUEST).where(STOP_REQUEST.c.sweep_id == sweep_id))
        request = {"sweep_id": sweep_id, "asker": ledger.system.host(), "at": ledger.now()}
        connection.execute(insert(STOP_REQUEST).values(**request))
        if asked is not None:
            asked.note(connection, ledger.now())

    with renewing(ledger, STOP_REQUEST, sweep_id):
        ledger.transact(ask)


def asked_to_stop(ledger: Ledger, sweep_id: str) -> str | None:
    """Return the name of the machine that requested a stop, `ROOM`, or None without a request."""
    askers = ledger.retried(lambda: ledger.read(_ASKER, {"sweep_id": sweep_id}))
    return str(askers[0][0]) if askers else None


def reason_of(asker: str) -> str:
    """Return the reason for the end of a sweep that a request has ended."""
    return "preempted for other sweeps" if asker == ROOM else f"stopped by `stop` on {asker}"


def resume(ledger: Ledger, sweep_id: str, *, asked: Asked | None = None) -> QueueSettings:
    """Queue a stopped sweep again, or let its driver continue if it has not ended; return all settings.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep.
        asked: Entry for the audit log, if any.

    Raises:
        WrongState: The sweep is not stopped, or has finished.
        OverQuota: The owner has as many waiting and running sweeps as the quota allows.
    """

    def write(change: QueueTransaction) -> QueueSettings:
        old = _locked_settings(change.connection, sweep_id)
        if not old.paused:
            remedy = "See its state with `status`."
            raise WrongState(sweep_id, "is not stopped", "", remedy)
        _resume(change, sweep_id)
        if asked is not None:
            asked.note(change.connection, ledger.now())
        return replace(old, paused=False)

    with renewing(ledger, STOP_REQUEST, sweep_id):
        return change_rows(ledger, write)


def _settings(connection: Connection, sweep_id: str) -> QueueSettings:
    priority = connection.execute(select(PRIORITY).where(PRIORITY.c.sweep_id == sweep_id)).one_or_none()
    asker = connection.execute(_ASKER, {"sweep_id": sweep_id}).scalar_one_or_none()
    paused = asker not in {None, ROOM}
    if priority is None:
        return QueueSettings(paused=paused)
    return QueueSettings(priority.priority_class, priority.weight, paused)


def _locked_settings(connection: Connection, sweep_id: str) -> QueueSettings:
    """Return the settings, locked until the transaction ends (FOR UPDATE)."""
    for column in (SUBMISSION.c.sweep_id, SWEEP.c.id):  # a setting that has its default has no row to lock
        connection.execute(select(column).where(column == sweep_id).with_for_update())
    return _settings(connection, sweep_id)


def _resume(change: QueueTransaction, sweep_id: str) -> None:
    """Delete the stop request, and queue a submission again that has ended because of it.

    The submission counts as changed even if its driver has not ended: the service must not end it for a
    request that it has read before.
    """
    connection = change.connection
    check_not_deleted(connection, sweep_id)
    sweep = connection.execute(select(SWEEP.c.state).where(SWEEP.c.id == sweep_id)).scalar_one_or_none()
    if sweep in FINISHED_SWEEP:
        must, remedy = "cannot be resumed, because it has finished", "Extend it to continue."
        raise WrongState(sweep_id, must, str(sweep), remedy)
    query = select(SUBMISSION.c.state, SUBMISSION.c.owner).where(SUBMISSION.c.sweep_id == sweep_id)
    row = connection.execute(query).one_or_none()
    if row is None:
        must, remedy = "cannot be resumed, because it was not submitted", "Retry it, which submits it."
        raise WrongState(sweep_id, must, "", remedy)
    if row.state == "ENDED":
        check_quota(connection, row.owner, sweep_id)
    connection.execute(delete(STOP_REQUEST).where(STOP_REQUEST.c.sweep_id == sweep_id))
    change.update(SUBMISSION.c.sweep_id == sweep_id, **(QUEUED_AGAIN if row.state == "ENDED" else {}))
