"""How the lease of a sweep is held: a locked file beside a SQLite ledger, or a row in PostgreSQL.

The lock on the file belongs to the open file description and is dropped by the kernel when the process ends;
no clock takes part. It does not pass to child processes, in which the file is closed once they start another
program, nor does it end when something else reads the file.

The row has a fencing token and expires by the server's clock. Each new holder raises the token, and every
change that a driver makes compares the token it took, so a driver that was cut off and comes back can change
nothing.
"""

from __future__ import annotations

import fcntl
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TextIO, TypeAlias

import psutil
from sqlalchemy import Connection, Float, Row, func, select, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

from orchestrator.errors import Busy
from orchestrator.ledger.tables import LEASE

SAME_START_SECONDS = 0.05
"""Largest difference between two start times of one process: the kernel counts them in ticks of 10 ms."""

PROBES, PROBE_SECONDS = 10, 0.05
"""How often and how long apart a driver tries a locked file: `file_holder` locks it for a moment too."""

LIFE_SECONDS = 45.0
"""How long a row outlives its last renewal."""

RENEW_SECONDS = 1.0
"""Time between two renewals: another driver sees within two seconds whether the holder is alive."""

LOOK_SECONDS = 0.25
SILENT_LOOKS = 8
"""Looks at an unchanged row after which its holder is reported as silent."""

LEAVE_SECONDS = 10.0

Connect = Callable[[], Connection]
Held: TypeAlias = Row[tuple[int, str, float, bool]]
"""Number, holder, time of expiry by the server's clock, and whether the row has not expired."""

_NOW = func.extract("epoch", func.clock_timestamp()).cast(Float(53))


class LeaseBackend(Protocol):
    """A way to hold a lease.

    Attributes:
        lost: whether another driver has taken the lease over.
    """

    lost: bool

    def take(self) -> None:
        """Take the lease, or raise Busy."""

    def release(self) -> None:
        """Give the lease back."""


@dataclass(frozen=True)
class Holder:
    """A process that drives a sweep.

    Attributes:
        pid: process id.
        host: name of the machine.
        place: identifies the boot and the process namespace that `pid` belongs to; empty if unknown.
        started: start of the process, seconds since the epoch.
        since: when the process took the lease, seconds since the epoch.
    """

    pid: int
    host: str
    place: str
    started: float
    since: float

    @classmethod
    def here(cls) -> Holder:
        """Return this process."""
        process = psutil.Process()
        return cls(process.pid, socket.gethostname(), _place(), process.create_time(), time.time())

    @classmethod
    def read(cls, text: str) -> Holder | None:
        """Return the holder that `write` wrote, or None for any other text."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def write(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_near(self) -> bool:
        """Return True if the process is visible from here, so that its death would be noticed."""
        return bool(self.place) and self.place == _place()

    def is_dead(self) -> bool:
        """Return True if the process is known to have ended, and False if that is not known."""
        if not self.is_near():
            return False
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) > SAME_START_SECONDS
        except psutil.NoSuchProcess:
            return True


def busy(sweep_id: str, holder: Holder | None) -> Busy:
    """Return the refusal that names the driver of a sweep, its machine and how long it has held the lease."""
    got = "another driver"
    if holder is not None:
        got = f"{holder}, for {max(0.0, time.time() - holder.since):.0f} s"
    return Busy(f"sweep {sweep_id}", "one driver at a time runs it", got, "Wait for that one, or `stop` it.")


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


class FileLease:
    """A lease held as a lock on a file; the file's content names the holder."""

    lost = False

    def __init__(self, path: Path, sweep_id: str) -> None:
        self._path, self._sweep_id = path, sweep_id
        self._file: TextIO | None = None

    def take(self) -> None:
        """Take the lock.

        Raises:
            Busy: a living process holds it.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+")
        for _ in range(PROBES):
            if _locked(file, fcntl.LOCK_EX):
                self._file = file
                file.truncate(0)
                file.write(Holder.here().write())
                file.flush()
                return
            if self._driver(file):
                break
            time.sleep(PROBE_SECONDS)
        file.close()
        raise busy(self._sweep_id, Holder.read(self._path.read_text()))

    def _driver(self, file: TextIO) -> Holder | None:
        """Return the driver that holds the lock; None for a process that only probes or has no name yet."""
        if _locked(file, fcntl.LOCK_SH):
            fcntl.flock(file, fcntl.LOCK_UN)
            return None
        named = Holder.read(self._path.read_text())
        return None if named is None or named.is_dead() else named

    def release(self) -> None:
        """Release the lock."""
        assert self._file is not None, "a lease is released once"
        self._file.close()
        self._file = None


def file_holder(path: Path) -> Holder | None:
    """Return the process that holds the lock at `path`, or None."""
    try:
        with path.open() as file:
            return None if _locked(file, fcntl.LOCK_SH) else Holder.read(file.read())
    except FileNotFoundError:
        return None


def is_held(path: Path) -> bool:
    """Return True if a process holds the lock at `path`."""
    with path.open("a") as file:
        return not _locked(file, fcntl.LOCK_EX)


def _locked(file: TextIO, kind: int) -> bool:
    """Lock an open file without waiting, and return True; return False if another process holds a lock."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class RowLease:
    """A lease held as a row of the lease table, which a thread renews.

    Args:
        connect: opens a connection for writing.
        sweep_id: of the sweep.
        on_wait: receives the reason while waiting for the lease of a lost machine to expire; see `Lease`.

    Attributes:
        token: compared with every change of this holder; 0 before the row is taken.
        lost: whether another driver has taken the lease over.
    """

    def __init__(self, connect: Connect, sweep_id: str, on_wait: Callable[[str], None] | None = None) -> None:
        self._connect, self._sweep_id, self._on_wait = connect, sweep_id, on_wait
        self.token = 0
        self.lost = False
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease-{sweep_id}", daemon=True)

    def take(self) -> None:
        """Take the row.

        Raises:
            Busy: a driver holds it that is alive, or may be.
        """
        row = self._try()
        if row is not None and self._on_wait is not None and not _is_near(row):
            row = self._wait_for_expiry(row, self._on_wait)
        if row is not None:
            raise busy(self._sweep_id, Holder.read(row.holder))
        self._thread.start()

    def _wait_for_expiry(self, first: Held, on_wait: Callable[[str], None]) -> Held | None:
        """Take the row of a lost machine when it expires; return the row if it is renewed instead."""
        looks = 0
        while True:
            time.sleep(LOOK_SECONDS)
            row = self._try()
            if row is None or row.expires_at != first.expires_at:
                return row
            looks += 1
            if looks == SILENT_LOOKS:
                who = Holder.read(row.holder) or "Another driver"
                on_wait(f"{who} is silent: waiting until its lease expires, {LIFE_SECONDS:g} s at most.")

    def _try(self) -> Held | None:
        """Take the row and return None, or return the row as another driver holds it."""
        with self._connect() as connection, connection.begin():
            row = _locked_row(connection, self._sweep_id)
            other = Holder.read(row.holder)
            if row.alive and not (other is not None and other.is_dead()):
                return row
            self.token = row.number + 1
            this = Holder.here().write()
            self._set(connection, number=self.token, holder=this, expires_at=_NOW + LIFE_SECONDS)
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
                continue  # the server is unreachable: the row outlives many renewals, and the token the row

    def _renew(self, connection: Connection, seconds: float) -> bool:
        own = (LEASE.c.sweep_id == self._sweep_id) & (LEASE.c.number == self.token)
        renewed = update(LEASE).where(own).values(expires_at=_NOW + seconds)
        return connection.execute(renewed).rowcount == 1

    def _set(self, connection: Connection, **columns: object) -> None:
        connection.execute(update(LEASE).where(LEASE.c.sweep_id == self._sweep_id).values(**columns))


def row_holder(connect: Connect, sweep_id: str) -> Holder | None:
    """Return the process that holds the row of a sweep, or None."""
    query = select(LEASE.c.holder).where(LEASE.c.sweep_id == sweep_id, LEASE.c.expires_at > _NOW)
    with connect() as connection:
        text = connection.execute(query).scalar_one_or_none()
    named = None if text is None else Holder.read(text)
    return None if named is None or named.is_dead() else named


def holds(connection: Connection, sweep_id: str, token: int) -> bool:
    """Return True if `token` is the newest of a sweep, and keep it so until the transaction ends."""
    newest = select(LEASE.c.number).where(LEASE.c.sweep_id == sweep_id).with_for_update(read=True)
    return connection.execute(newest).scalar_one_or_none() == token


def _is_near(row: Held) -> bool:
    named = Holder.read(row.holder)
    return named is not None and named.is_near()


def _locked_row(connection: Connection, sweep_id: str) -> Held:
    empty = {"sweep_id": sweep_id, "number": 0, "holder": "", "expires_at": 0.0}
    connection.execute(postgresql.insert(LEASE).values(**empty).on_conflict_do_nothing())
    alive = (LEASE.c.expires_at > _NOW).label("alive")
    query = select(LEASE.c.number, LEASE.c.holder, LEASE.c.expires_at, alive).where(
        LEASE.c.sweep_id == sweep_id
    )
    return connection.execute(query.with_for_update()).one()
