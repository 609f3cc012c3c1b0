"""Redelivery: send MLflow again what it has lost. Everything that was ever delivered is in the ledger."""

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


def redeliver(ledger: Ledger, sweep_id: str, paths: Paths, seconds: float) -> tuple[int, int]:
    """Deliver every event of a sweep once more; return how many there are, and how many are still pending.

    Args:
        ledger: holds the sweep.
        sweep_id: of the sweep.
        paths: where MLflow is.
        seconds: longest time to deliver.

    Raises:
        Busy: a driver runs the sweep, and delivers its events itself.
    """
    with Lease(ledger, sweep_id) as lease:
        events = lease.writer.redeliver()
        shipper = Shipper(lease, paths.tracking_uri, paths.artifacts)
        shipper.start()
        pending = shipper.drain(seconds)
        shipper.close()
    return events, pending


def set_aside(paths: Paths) -> Path | None:
    """Rename an SQLite database of MLflow that cannot be read; return its new name, or None if it is intact.

    Its logs are renamed with it, even if the database itself is gone: SQLite would write them into the next
    one.
    """
    local = sqlite_path(paths.tracking_uri)
    if local is None or _is_intact(file := Path(local)):
        return None
    parts = [file.with_name(file.name + part) for part in PARTS]
    aside = file.with_name(f"{file.name}.damaged")
    for part in parts:
        if part.exists():
            part.replace(part.with_name(part.name.replace(file.name, aside.name, 1)))
    return aside if aside.exists() else None


def _is_intact(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=30)) as reader:
            return bool(reader.execute("PRAGMA quick_check").fetchone() == ("ok",))
    except sqlite3.Error:
        return False
