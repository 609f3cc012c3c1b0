"""Creation and migration of MLflow's database, safe against concurrent first users and killed processes.

`python -m orchestrator.tracking.database URI` prepares a database for a server.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from filelock import FileLock
from mlflow.db import upgrade
from mlflow.tracking import MlflowClient

from orchestrator.ledger.connect import SQLITE_PARTS
from orchestrator.storage.paths import sqlite_url
from orchestrator.tracking.address import is_created, migration_lock, sqlite_path


def connect(uri: str) -> MlflowClient:
    """Return a client of a store with the current schema.

    MLflow migrates a database at its first use, without a lock. A SQLite file is therefore created and
    migrated under a file lock. WAL mode keeps readers from blocking the writer.
    """
    path = sqlite_path(uri)
    if path is None:
        return MlflowClient(uri)
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(migration_lock(file)):
        if not is_created(file):
            _create(file)
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    return client


def _create(file: Path) -> None:
    """Create a database under another name, and rename it once it is complete.

    MLflow creates its tables in many commits, which take seconds to minutes. An incomplete database can be
    neither used nor completed.
    """
    unfinished = file.with_name(f"{file.name}.new")
    for part in SQLITE_PARTS:
        unfinished.with_name(unfinished.name + part).unlink(missing_ok=True)
    upgrade.main([sqlite_url(unfinished.absolute())], standalone_mode=False)
    for part in SQLITE_PARTS[1:]:
        file.with_name(file.name + part).unlink(missing_ok=True)
    unfinished.replace(file)


if __name__ == "__main__":
    connect(sys.argv[1])
