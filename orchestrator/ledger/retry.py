"""What to do when a database does not do as it is told: wait within bounds, or say what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError

from orchestrator.errors import BadInput, Damaged, NoSpace
from orchestrator.ledger.connect import BUSY_SECONDS
from trainables.errors import Refusal

Result = TypeVar("Result")

# A lock held for 25 s is waited for once, by SQLite itself; this bounds how often a longer one is waited for.
BUSY_TRIES = 3
# A server that restarts is back within a minute; after that a person has to look.
RECONNECT_SECONDS = 90.0


def patiently(
    attempt: Callable[[], Result],
    where: str,
    *,
    reconnect_seconds: float = RECONNECT_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Run a whole transaction, again after a lock or a lost server, within bounds.

    Args:
        attempt: the transaction; it must be right to run twice.
        where: the ledger without its password, for errors.
        reconnect_seconds: how long a server may stay away.
        sleep: waits that many seconds.

    Raises:
        BadInput: the database stayed locked or away.
        Damaged: SQLite cannot read its file.
        NoSpace: the disk is full.
    """
    began, wait, busy = time.monotonic(), 0.1, 0
    while True:
        try:
            return attempt()
        except DBAPIError as error:
            met = is_locked(error) or _is_conflict(error)
            busy += met
            in_time = time.monotonic() + wait <= began + reconnect_seconds
            if not (busy < BUSY_TRIES if met else _is_lost(error) and in_time):
                raise (_refusal(error, where) or error) from error
        sleep(wait)
        wait = min(2 * wait, 5.0)


def is_locked(error: DBAPIError) -> bool:
    """Tell whether another process held a lock of SQLite for too long."""
    return _sqlite_code(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _is_conflict(error: DBAPIError) -> bool:
    """Tell whether another transaction of PostgreSQL was in the way: the same row, or a deadlock."""
    return getattr(error.orig, "sqlstate", None) in {"23505", "40001", "40P01"}


def _is_lost(error: DBAPIError) -> bool:
    lost = error.connection_invalidated or isinstance(error, OperationalError)
    return lost and not _sqlite_code(error) and not _is_full(error)


def _is_full(error: DBAPIError) -> bool:
    # 53100 is PostgreSQL's disk_full; the second one of SQLite is what its shared memory meets there.
    full = _sqlite_code(error) in {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"}
    return full or getattr(error.orig, "sqlstate", None) == "53100"


def _is_damage(error: DBAPIError) -> bool:
    return _sqlite_code(error).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or (
        type(error) is DatabaseError and bool(_sqlite_code(error))
    )


def _sqlite_code(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlite_errorname", ""))


def _refusal(error: DBAPIError, where: str) -> Refusal | None:
    if is_locked(error):
        got = f"a lock longer than {BUSY_TRIES * BUSY_SECONDS:g} s"
        remedy = "Find who holds it (`lsof`), or use PostgreSQL where many write."
        return BadInput(where, "must not stay locked", got, remedy)
    if _is_full(error):
        return NoSpace(
            where, "needs space to write", str(error.orig), "Free some, and run the same command again."
        )
    if _is_damage(error):
        remedy = "Run `recover` to rebuild the ledger from its backup."
        return Damaged(where, "must be a sound SQLite database", str(error.orig), remedy)
    if _is_lost(error):
        got = str(error.orig).strip().splitlines()[0]
        return BadInput(where, "the database must answer", got, "Start it, or name another one.")
    return None
