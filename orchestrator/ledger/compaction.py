"""Compaction of a sweep's backup: its present state replaces all earlier commits."""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator
from itertools import chain, islice

from filelock import FileLock
from sqlalchemy import Connection, select

from orchestrator.ledger import backup
from orchestrator.ledger.backup import Change, Entry
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.rows import rows_of_sweep
from orchestrator.ledger.schema import refused_without_space
from orchestrator.ledger.tables import TALLY
from orchestrator.system import without_garbage_collection

ROWS_A_PART = 1000
"""Rows in a line of a compacted backup: a million reports would fill the memory."""

PRIORITY = 10
"""Increase of the niceness of a process that compacts a backup beside a running sweep."""


def compact(ledger: Ledger, sweep_id: str, may_replace: Callable[[], bool] = lambda: True) -> None:
    """Compact the backup of a sweep.

    The state is written from a snapshot, which delays no writer. While the lines of later commits are copied,
    the log is locked, so that no commit is made.

    Args:
        ledger: SQLite ledger of the sweep.
        sweep_id: ID of the sweep.
        may_replace: Function that is called once the state has been written; the old log stays if it is
            False.

    Raises:
        Damaged: A row does not match its digest; the old log stays.
        NoSpace: The disk is full; the old log stays.
    """
    log, folder = backup.backup_file(ledger.address, sweep_id), backup.backup_folder(ledger.address)
    with refused_without_space(folder, "a backup"), FileLock(folder / "compaction.lock"):
        with ledger.reader() as connection:
            # While the log is locked no commit lacks its line.
            with backup.locked(log) as held:
                commits, length = _commits(connection, sweep_id), held.length
            fresh = backup.write(log, _whole_state(connection, sweep_id, commits))
        if may_replace():
            with backup.locked(log) as held:
                held.replace(fresh, length)


def compact_beside(ledger: Ledger, sweep_id: str) -> None:
    """Compact the backup of a sweep in a process that ends with this one."""
    arguments = (ledger.address.render_as_string(), sweep_id, os.getpid())
    # Spawned, not forked: a driver has threads.
    multiprocessing.get_context("spawn").Process(target=_compact, args=arguments, daemon=True).start()


@without_garbage_collection()
def _compact(address: str, sweep_id: str, parent: int) -> None:
    os.nice(PRIORITY)
    ledger = Ledger.open(address)
    # Without its driver, another process may be rebuilding the ledger.
    compact(ledger, sweep_id, may_replace=lambda: os.getppid() == parent)
    ledger.close()


def _commits(connection: Connection, sweep_id: str) -> int:
    return int(connection.execute(select(TALLY.c.commits).where(TALLY.c.sweep_id == sweep_id)).scalar_one())


def _whole_state(connection: Connection, sweep_id: str, commits: int) -> Iterator[Entry]:
    """Yield the rows of a sweep in parts that fit in memory, its own row first."""
    of_sweep = select(TALLY.c.rows).where(TALLY.c.sweep_id == sweep_id)
    parts = math.ceil(connection.execute(of_sweep).scalar_one() / ROWS_A_PART)
    changes = _changes(connection, sweep_id)
    for following in reversed(range(parts)):
        yield Entry(commits, list(islice(changes, ROWS_A_PART)), following)


def _changes(connection: Connection, sweep_id: str) -> Iterator[Change]:
    for table, batches in rows_of_sweep(connection, sweep_id):
        names, key = table.columns.keys(), table.primary_key.columns.keys()
        for row in chain.from_iterable(batches):
            columns = dict(zip(names, row, strict=True))
            yield table.name, {name: columns[name] for name in key}, columns
