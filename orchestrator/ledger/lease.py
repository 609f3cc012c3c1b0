"""One driver a sweep: a lease that a dead driver cannot keep.

On SQLite it is a lock on a file beside the database, released by the kernel with its process: no clock takes
part.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from orchestrator.errors import Busy
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.schema import lock_folder

# A glance of another process at the lock lasts microseconds; it must not pass for a holder.
GLANCES, GLANCE_SECONDS = 5, 0.05


@dataclass(frozen=True)
class Holder:
    """Who holds a lease: a process of a host, and since when (seconds since the epoch)."""

    pid: int
    host: str
    since: float

    @classmethod
    def here(cls) -> Holder:
        """Return this process."""
        return cls(os.getpid(), socket.gethostname(), time.time())


class Lease:
    """The right to drive one sweep, held as a context.

    Raises:
        Busy: on entering, if another live driver holds it.
    """

    def __init__(self, ledger: Ledger, sweep_id: str) -> None:
        self._path = lock_folder(ledger.address) / sweep_id
        self._sweep_id = sweep_id
        self._file: TextIO | None = None

    def __enter__(self) -> Lease:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+")
        for _ in range(GLANCES):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(GLANCE_SECONDS)
                continue
            _sign(file)
            self._file = file
            return self
        holder = _read(self._path)
        file.close()
        raise busy(self._sweep_id, holder)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None, "a lease is left once"
        self._file.close()
        self._file = None


def _sign(file: TextIO) -> None:
    file.truncate(0)
    json.dump(asdict(Holder.here()), file)
    file.flush()


def _read(path: Path) -> Holder | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        return Holder(**content)
    except (ValueError, TypeError):
        return None


def busy(sweep_id: str, holder: Holder | None) -> Busy:
    """Return the refusal that names who holds the sweep, where and since when."""
    got = (
        "another driver"
        if holder is None
        else (f"process {holder.pid} on {holder.host}, for {time.time() - holder.since:.0f} s")
    )
    return Busy(f"sweep {sweep_id}", "one driver runs a sweep", got, "Wait for it, or stop it with `stop`.")
