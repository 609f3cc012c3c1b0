"""MLflow's database can be used whatever a process was doing that was killed while it created one."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from orchestrator.tracking.database import connect

KILLED_AT = """
import os, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine

left = int(sys.argv[1])

@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, *rest):
    global left
    left -= statement.lstrip().startswith(("CREATE TABLE", "DROP TABLE", "ALTER TABLE"))
    if left < 0:
        os._exit(9)
"""
"""Ends the process before a statement of MLflow's that creates, drops or changes a table."""

CREATE = "from orchestrator.tracking.database import connect; connect(sys.argv[2])"
MLFLOW_CREATES = "from mlflow.tracking import MlflowClient; MlflowClient(sys.argv[2]).search_experiments()"


def killed(statements: int, uri: str, what: str) -> None:
    """Create a database in a process that ends after so many changes of tables."""
    command = [sys.executable, "-c", KILLED_AT + what, str(statements), uri]
    assert subprocess.run(command, capture_output=True).returncode == 9


@pytest.mark.slow
@pytest.mark.parametrize("statements", [9, 40, 90])
def test_a_database_whose_creation_was_killed_is_created_by_the_next_process(
    tmp_path: Path, statements: int
) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    killed(statements, uri, CREATE)
    assert not (tmp_path / "mlflow.db").exists()
    assert [each.name for each in connect(uri).search_experiments()] == ["Default"]
    left = {path.name for path in tmp_path.iterdir()} - {f"mlflow.db{part}" for part in ("", "-wal", "-shm")}
    assert left == {"mlflow.db.lock"}


@pytest.mark.slow
def test_a_database_that_mlflow_has_left_half_made_is_replaced(tmp_path: Path) -> None:
    """Earlier versions let MLflow create it under its own name."""
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    killed(40, uri, MLFLOW_CREATES)
    assert (tmp_path / "mlflow.db").exists()
    assert [each.name for each in connect(uri).search_experiments()] == ["Default"]


@pytest.mark.slow
def test_a_database_of_something_else_is_never_replaced(tmp_path: Path) -> None:
    """Such as the ledger, whose address was given for that of MLflow by mistake."""
    file = tmp_path / "sweeps.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("CREATE TABLE trial (name); INSERT INTO trial VALUES ('precious')")
    with suppress(MlflowException):  # which may add its tables, or refuse
        connect(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT name FROM trial").fetchall() == [("precious",)]
