"""Erasure of a removed sweep from the ledger and its backup."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

from sqlalchemy import Connection, Select, Table, delete, select

from orchestrator.ledger.backup import ROW_FOLDERS, backup_file
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import COMMAND_LINE, append
from orchestrator.ledger.row_backup import renew, row_file, row_files
from orchestrator.ledger.schema import lock_folder
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.tables import METADATA, SHELF, SWEEP, TRIAL

REMOVED = "removed"
"""Action of the entry of the audit log about the removal of a sweep."""


def erase(lease: Lease, ledger: Ledger, sweep_id: str, freed: int) -> None:
    """Delete all rows of a sweep, its backup and its lock, except for the audit log.

    The row that marks the sweep as deleted goes with the others in the last transaction, so an erasure that
    is killed can be repeated.

    Args:
        lease: Lease of the sweep.
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep, which has no files any more.
        freed: Size of its files in bytes, for the audit log.
    """
    keys = _backed_up(ledger, sweep_id)
    lease.check()
    if ledger.is_file:
        # Before the rows: a log without its rows would prove that the database has lost commits.
        backup_file(ledger.address, sweep_id).unlink(missing_ok=True)
        for table, key in keys:
            row_file(ledger.address, table, key).unlink(missing_ok=True)
        # A driver that creates and locks the next file refuses the sweep, which is marked as deleted.
        (lock_folder(ledger.address) / sweep_id).unlink(missing_ok=True)

    def forget(connection: Connection) -> None:
        of_trials = select(TRIAL.c.key).where(TRIAL.c.sweep_id == sweep_id)
        for table in reversed(METADATA.sorted_tables):
            if "sweep_id" in table.c:
                connection.execute(delete(table).where(table.c.sweep_id == sweep_id))
            elif "trial_key" in table.c:
                connection.execute(delete(table).where(table.c.trial_key.in_(of_trials)))
        connection.execute(delete(SWEEP).where(SWEEP.c.id == sweep_id))
        append(connection, ledger.now(), COMMAND_LINE, REMOVED, sweep_id, bytes=freed)

    ledger.transact(forget)
    renew(ledger, SHELF, sweep_id)
    ledger.flush()


def renew_shelf(ledger: Ledger) -> None:
    """Delete the backup files of erased sweeps that a killed process has left."""
    for file in row_files(ledger.address, SHELF) if ledger.is_file else ():
        renew(ledger, SHELF, unquote(file.stem))


def _backed_up(ledger: Ledger, sweep_id: str) -> list[tuple[Table, str]]:
    """Return the rows of a sweep with backup files of their own, except that of its deletion."""
    found: list[tuple[Table, str]] = []
    for table in ROW_FOLDERS:
        if table is SHELF or "sweep_id" not in table.c:
            continue
        [key] = table.primary_key.columns
        query = select(key).where(table.c.sweep_id == sweep_id)
        found += [(table, each) for each in ledger.query(partial(_keys, query))]
    return found


def _keys(query: Select[Any], connection: Connection) -> Sequence[str]:
    return connection.execute(query).scalars().all()
