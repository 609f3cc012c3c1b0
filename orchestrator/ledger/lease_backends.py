"""Lease backends: a locked file beside a SQLite ledger, or a row in PostgreSQL.

The lock belongs to the open file description: the kernel drops it when the process ends, and no clock takes
part. Child processes do not inherit it, because the file is closed when they start another program, and other
readers of the file do not end it. The row expires by the server's clock, unless its holder renews it.

Both have a number in the table `lease`, which each new holder raises. Every change compares that number with
its token, so a driver that was cut off and comes back changes nothing.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

from sqlalchemy import Connection, Float, Insert, Select, bindparam, func, literal_column, select, update

from orchestrator.ledger.holder import Holder, Token, busy
from orchestrator.ledger.prepared import Answer, execute, send
from orchestrator.ledger.schema import RECOVERY_LOCK, refused_without_space
from orchestrator.ledger.tables import LEASE
from orchestrator.system import System

PROBES, PROBE_SECONDS = 10, 0.05
"""Tries of a locked file and seconds between them, because `file_holder` also locks it for a moment."""

LIFE_SECONDS = 45.0
"""Lifetime of a row after its last renewal."""

POLL_SECONDS = 0.25
SILENT_POLLS = 8
"""Polls of an unchanged row after which its holder is reported as silent."""

SILENT_POLL_SECONDS = 5.0
"""Seconds between two polls of a silent holder's row."""

Connect = Callable[[], Connection]


class Held(NamedTuple):
    """Row of a lease.

    Attributes:
        number: Number of the newest token.
        holder: Process, as `Holder.write` has written it.
        expires_at: Expiry by the server's clock.
        alive: Whether it has not expired.
    """

    number: int
    holder: str
    expires_at: float
    alive: bool


SERVER_NOW = func.extract("epoch", func.clock_timestamp()).cast(Float(53))
"""Seconds since the epoch, by the clock of PostgreSQL's server."""


class LeaseBackend(Protocol):
    """A way to hold a lease."""

    def take(self) -> Token:
        """Take the lease, or raise Busy."""

    def renew(self, token: Token) -> bool:
        """Renew the lease; return False if `token` is not the newest."""

    def release(self, token: Token) -> None:
        """Give the lease back."""


class FileLease:
    """Lease as a lock on a file that names the holder.

    Args:
        path: Path of the file.
        read: Function that opens a connection for reading.
        connect: Function that opens a connection for writing.
        sweep_id: ID of the sweep.
        reconnect: Function that closes connections to a database that `recover` may have replaced.
        system: System of the process.
    """

    def __init__(
        self,
        path: Path,
        read: Connect,
        connect: Connect,
        sweep_id: str,
        reconnect: Callable[[], None],
        system: System = System(),
    ) -> None:
        self._path, self._read, self._connect = path, read, connect
        self._sweep_id, self._reconnect, self._system = sweep_id, reconnect, system
        self._file: TextIO | None = None
        self._recovery: TextIO | None = None

    def take(self) -> Token:
        """Take the lock, and then the next number.

        Raises:
            Busy: A living process holds it.
            NoSpace: The disk of the file is full.
        """
        with refused_without_space(self._path):
            return self._take()

    def _take(self) -> Token:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as files:
            self._recovery = files.enter_context(self._path.with_name(RECOVERY_LOCK).open("a"))
            fcntl.flock(self._recovery, fcntl.LOCK_SH)
            self._reconnect()
            file = files.enter_context(self._path.open("a+"))
            for _ in range(PROBES):
                if _locked(file, fcntl.LOCK_EX):
                    self._file = file
                    files.pop_all()
                    return self._numbered(file)
                if self._driver(file):
                    break
                self._system.sleep(PROBE_SECONDS)
        raise busy(self._sweep_id, Holder.read_file(self._path), self._system)

    def _numbered(self, file: TextIO) -> Token:
        this = Holder.here(self._system)
        try:
            file.truncate(0)
            file.write(this.write())
            file.flush()
            return next_token(self._connect, self._sweep_id, this)
        except BaseException:
            self.release()
            raise

    def renew(self, token: Token) -> bool:
        """Return True if the token is the newest; the lock needs no renewal, but its file can be deleted."""
        with self._read() as connection:
            return holds(connection, token)

    def _driver(self, file: TextIO) -> Holder | None:
        """Return the driver that holds the lock; None for a process that only probes or is still unnamed."""
        if _locked(file, fcntl.LOCK_SH):
            fcntl.flock(file, fcntl.LOCK_UN)
            return None
        named = Holder.read_file(self._path)
        return None if named is None or named.is_dead(self._system) else named

    def release(self, _: Token | None = None) -> None:
        """Release the lock."""
        assert self._file is not None, "a lease is released once"
        assert self._recovery is not None
        self._file.close()
        self._recovery.close()
        self._file = self._recovery = None


def file_holder(path: Path) -> Holder | None:
    """Return the process that holds the lock at `path`, or None."""
    try:
        with path.open() as file:
            return None if _locked(file, fcntl.LOCK_SH) else Holder.read_file(path)
    except FileNotFoundError:
        return None


def is_held(path: Path) -> bool:
    """Return True if a process holds the lock at `path`."""
    with path.open("a") as file:
        return not _locked(file, fcntl.LOCK_EX)


def _locked(file: TextIO, kind: int) -> bool:
    """Lock an open file without waiting; return False if another process holds a lock."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class RowLease:
    """Lease as a row of the lease table.

    Args:
        connect: Function that opens a connection for writing.
        sweep_id: ID of the sweep.
        on_wait: As for `Lease`.
        system: System of the process.
    """

    def __init__(
        self,
        connect: Connect,
        sweep_id: str,
        on_wait: Callable[[str], None] | None = None,
        system: System = System(),
    ) -> None:
        self._connect, self._sweep_id, self._on_wait, self._system = connect, sweep_id, on_wait, system

    def take(self) -> Token:
        """Take the row.

        Raises:
            Busy: A driver that is or may be alive holds it.
        """
        taken = self._try()
        if not isinstance(taken, Token) and self._on_wait is not None and not _is_near(taken, self._system):
            taken = self._wait_for_expiry(taken, self._on_wait)
        if not isinstance(taken, Token):
            raise busy(self._sweep_id, Holder.read(taken.holder), self._system)
        return taken

    def _wait_for_expiry(self, first: Held, on_wait: Callable[[str], None]) -> Token | Held:
        """Take the row of a lost machine when it expires; return the row if its holder renews it."""
        polls = 0
        while True:
            self._system.sleep(POLL_SECONDS if polls < SILENT_POLLS else SILENT_POLL_SECONDS)
            taken = self._try()
            if isinstance(taken, Token) or taken.expires_at != first.expires_at:
                return taken
            polls += 1
            if polls == SILENT_POLLS:
                who = Holder.read(taken.holder) or "Another driver"
                on_wait(f"{who} is silent: waiting until its lease expires, {LIFE_SECONDS:g} s at most.")

    def _try(self) -> Token | Held:
        """Take the row, or return that of another driver."""
        with self._connect() as connection, connection.begin():
            row = _locked_row(connection, self._sweep_id)
            other = Holder.read(row.holder)
            if row.alive and not (other is not None and other.is_dead(self._system)):
                return row
            token = Token(self._sweep_id, row.number + 1, Holder.here(self._system))
            execute(connection, _TAKE, _named(token))
            return token

    def renew(self, token: Token) -> bool:
        """Prolong the row, and return True; return False if the token is not the newest."""
        return self._expire(token, LIFE_SECONDS)

    def release(self, token: Token) -> None:
        """Let the row expire now."""
        self._expire(token, 0.0)

    def _expire(self, token: Token, seconds: float) -> bool:
        own = {"key_sweep_id": token.sweep_id, "key_number": token.number, "key_seconds": seconds}
        with self._connect() as connection, connection.begin():
            execute(connection, _EXPIRE, own)
            return holds(connection, token)


def row_holder(connect: Connect, sweep_id: str, system: System = System()) -> Holder | None:
    """Return the process that holds the row of a sweep, or None."""
    query = select(LEASE.c.holder).where(LEASE.c.sweep_id == sweep_id, LEASE.c.expires_at > SERVER_NOW)
    with connect() as connection:
        text = connection.execute(query).scalar_one_or_none()
    named = None if text is None else Holder.read(text)
    return None if named is None or named.is_dead(system) else named


def rows_held(connect: Connect, system: System = System()) -> frozenset[str]:
    """Return the sweeps with a holder that is or may be alive."""
    query = select(LEASE.c.sweep_id, LEASE.c.holder).where(LEASE.c.expires_at > SERVER_NOW)
    with connect() as connection:
        rows = [(row.sweep_id, Holder.read(row.holder)) for row in connection.execute(query)]
    return frozenset(sweep for sweep, named in rows if named is not None and not named.is_dead(system))


def holds(connection: Connection, token: Token) -> bool:
    """Return True if a token is the newest of its sweep, and lock its row until the transaction ends."""
    return is_newest(token, newest(connection, token.sweep_id))


def newest(connection: Connection, sweep_id: str) -> Answer:
    """Ask for the number of the newest token of a sweep, for `is_newest`, and lock its row."""
    return send(connection, _NEWEST, {"sweep_id": sweep_id})


def require_newest(connection: Connection, token: Token) -> None:
    """Let the server compare a token with the newest of its sweep, and lock its row, within `pipelined`.

    The pipeline raises `Stale` if there is a newer one.
    """
    send(connection, _IS_NEWEST, {"sweep_id": token.sweep_id, "number": token.number}, matches=True)


def is_newest(token: Token, answer: Answer) -> bool:
    """Return True if a token has the number that `newest` has found."""
    return [number for (number,) in answer.rows] == [token.number]


def next_token(connect: Connect, sweep_id: str, holder: Holder) -> Token:
    """Return a new token of a sweep, whether or not another process drives it."""
    with connect() as connection, connection.begin():
        execute(connection, _ensure(), {"sweep_id": sweep_id, **_EMPTY})
        [(number,)] = execute(connection, _NUMBER, {"sweep_id": sweep_id})
        token = Token(sweep_id, number + 1, holder)
        execute(connection, _NAME, _named(token))
    return token


def _named(token: Token) -> dict[str, object]:
    """Return the parameters of a statement that writes a token."""
    return {"number": token.number, "holder": token.holder.write(), "key_sweep_id": token.sweep_id}


# Built once: to build a statement costs more than to run it. A driver executes the first one in every
# transaction, and renews its row once a second.
_NEWEST = select(LEASE.c.number).where(LEASE.c.sweep_id == bindparam("sweep_id")).with_for_update(read=True)
_FOUND = _NEWEST.cte("newest")
_IS_NEWEST: Select[Any] = (
    select(literal_column("1 / count(*)"))  # fails without a row, as `matches` of `prepared.send` requires
    .select_from(_FOUND)
    .where(_FOUND.c.number == bindparam("number"))
)
_EMPTY = {"number": 0, "holder": "", "expires_at": 0.0}
_NUMBER = select(LEASE.c.number).where(LEASE.c.sweep_id == bindparam("sweep_id")).with_for_update()
_ROW = (
    select(
        LEASE.c.number, LEASE.c.holder, LEASE.c.expires_at, (LEASE.c.expires_at > SERVER_NOW).label("alive")
    )
    .where(LEASE.c.sweep_id == bindparam("sweep_id"))
    .with_for_update()
)
_OF_SWEEP = update(LEASE).where(LEASE.c.sweep_id == bindparam("key_sweep_id"))
_NAME = _OF_SWEEP.values(number=bindparam("number"), holder=bindparam("holder"))
_TAKE = _NAME.values(expires_at=SERVER_NOW + LIFE_SECONDS)
_EXPIRE = _OF_SWEEP.where(LEASE.c.number == bindparam("key_number")).values(
    expires_at=SERVER_NOW + bindparam("key_seconds", type_=Float(53))
)


def _is_near(row: Held, system: System) -> bool:
    named = Holder.read(row.holder)
    return named is not None and named.is_near(system)


@cache
def _ensure() -> Insert:
    """Return the statement that adds the row of a sweep unless it exists."""
    from sqlalchemy.dialects import postgresql  # a tenth of a second, which a SQLite ledger does not need

    return postgresql.insert(LEASE).on_conflict_do_nothing()


def _locked_row(connection: Connection, sweep_id: str) -> Held:
    execute(connection, _ensure(), {"sweep_id": sweep_id, **_EMPTY})
    [row] = execute(connection, _ROW, {"sweep_id": sweep_id})
    return Held(*row)
