"""MLflow's database: creates and migrates it under a lock.

As a program, `python -m orchestrator.tracking.database URI`, it prepares the database before a server opens
it.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from filelock import FileLock
from mlflow.tracking import MlflowClient

from orchestrator.tracking.address import migration_lock, sqlite_path


def connect(uri: str) -> MlflowClient:
    """Return a client whose store has the current schema.

    MLflow migrates on first use without a lock, and two first users destroy each other's work: an SQLite file
    is therefore migrated under a file lock. It is set to WAL mode, or a reader in the UI would block the
    writer.
    """
    path = sqlite_path(uri)
    if path is None:
        return MlflowClient(uri)
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(migration_lock(file)):
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
    return client


if __name__ == "__main__":
    connect(sys.argv[1])
