"""Sweeps that users have archived or deleted.

An archived sweep is left out of lists. A deleted one is also refused by everything that would run it, until a
user undoes the deletion or a garbage collection removes the sweep with all of its rows and files.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from orchestrator.errors import Busy, WrongState
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.user_records import Shelf, Shelved
from orchestrator.ledger.row_backup import renewing
from orchestrator.ledger.tables import SHELF, SUBMISSION, SWEEP

REMOVING = "removing"
"""Place of a deleted sweep from the beginning of its removal on, which cannot be undone."""

_SEEN = select(SHELF.c.shelf).where(SHELF.c.sweep_id == bindparam("sweep_id"))
_ONE = _SEEN.with_for_update()
_ALL = select(*SHELF.columns).order_by(SHELF.c.at, SHELF.c.sweep_id)


def shelve(ledger: Ledger, sweep_id: str, shelf: Shelf | None, asked: Asked) -> None:
    """Archive or delete a sweep, or undo that, durably.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of a sweep without a driver.
        shelf: `archived` or `deleted`; None to undo either.
        asked: Entry for the audit log.

    Raises:
        Busy: The sweep is queued or running.
        WrongState: The sweep is neither archived nor deleted, or its removal has begun.
    """

    def write(connection: Connection) -> None:
        connection.execute(select(SWEEP.c.id).where(SWEEP.c.id == sweep_id).with_for_update())
        submitted = select(SUBMISSION.c.state).where(SUBMISSION.c.sweep_id == sweep_id).with_for_update()
        state = connection.execute(submitted).scalar_one_or_none()
        if shelf is not None and state in {"QUEUED", "STARTED"}:
            must = f"must not be queued or running to be {shelf}"
            raise Busy(sweep_id, must, str(state), f"Stop it first, with `stop {sweep_id}`.")
        before = connection.execute(_ONE, {"sweep_id": sweep_id}).scalar_one_or_none()
        if before == REMOVING:
            must = "is being removed, which cannot be undone"
            raise WrongState(sweep_id, must, "", "`gc --delete` completes the removal.")
        if shelf is None and before is None:
            raise WrongState(sweep_id, "is neither archived nor deleted", "", "`list` shows all sweeps.")
        connection.execute(delete(SHELF).where(SHELF.c.sweep_id == sweep_id))
        now = ledger.now()
        if shelf is not None:
            row = Shelved(sweep_id, shelf, asked.actor, now)
            connection.execute(insert(SHELF).values(**vars(row)))
        asked.note(connection, now)

    with renewing(ledger, SHELF, sweep_id):
        ledger.transact(write)


def begin_removal(ledger: Ledger, sweep_id: str) -> bool:
    """Mark the removal of a deleted sweep as begun; return False if a user has undone the deletion."""

    def write(connection: Connection) -> bool:
        shelf = connection.execute(_ONE, {"sweep_id": sweep_id}).scalar_one_or_none()
        if shelf == "deleted":
            of_sweep = update(SHELF).where(SHELF.c.sweep_id == sweep_id)
            connection.execute(of_sweep.values(shelf=REMOVING))
        return shelf in ("deleted", REMOVING)

    with renewing(ledger, SHELF, sweep_id):
        return ledger.transact(write)


def shelved(ledger: Ledger) -> Mapping[str, Shelved]:
    """Return the archived and deleted sweeps by ID, the first ones first."""
    rows = ledger.query(lambda connection: connection.execute(_ALL).all())
    return {
        row.sweep_id: Shelved(
            row.sweep_id, "archived" if row.shelf == "archived" else "deleted", row.actor, row.at
        )
        for row in rows
    }


def check_not_deleted(connection: Connection, sweep_id: str) -> None:
    """Check that a sweep that is about to run was not deleted.

    Raises:
        WrongState: It was deleted.
    """
    if connection.execute(_SEEN, {"sweep_id": sweep_id}).scalar_one_or_none() in ("deleted", REMOVING):
        remedy = f"Undo it with `delete {sweep_id} --undo`, or submit the file with --new."
        raise WrongState(sweep_id, "must not be deleted to run", "", remedy)
