"""Tell MLflow again what it has lost: all that it was ever told stands in the ledger."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger import Ledger
from orchestrator.storage.paths import Paths
from orchestrator.tracking.address import sqlite_path
from orchestrator.tracking.shipper import Shipper

PARTS = ("", "-wal", "-shm")


def retell(ledger: Ledger, sweep_id: str, paths: Paths, seconds: float) -> tuple[int, int]:
    """Deliver every record of a sweep once more; return how many there are, and how many still wait.

    Raises:
        Busy: its driver lives, and delivers itself.
    """
    with Lease(ledger, sweep_id):
        told = ledger.redeliver(sweep_id)
        shipper = Shipper(paths.ledger_url, sweep_id, paths.tracking_uri, paths.artifacts)
        shipper.start()
        left = shipper.drain(seconds)
        shipper.close()
    return told, left


def set_aside(paths: Paths) -> Path | None:
    """Rename an MLflow database of our own that cannot be read; return its new name, None if it is sound.

    The logs of one that is gone go with it: SQLite would write them into the next.
    """
    local = sqlite_path(paths.tracking_uri)
    if local is None or _sound(file := Path(local)):
        return None
    left = [file.with_name(file.name + part) for part in PARTS]
    aside = file.with_name(f"{file.name}.damaged")
    for part in left:
        if part.exists():
            part.replace(part.with_name(part.name.replace(file.name, aside.name, 1)))
    return aside if aside.exists() else None


def _sound(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=30)) as reader:
            return bool(reader.execute("PRAGMA quick_check").fetchone() == ("ok",))
    except sqlite3.Error:
        return False
