"""Address of MLflow, and the environment of the processes that import it. This module does not import it."""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.errors import BadInput
from orchestrator.storage.paths import sqlite_url

_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_SERVERS = {"http": 80, "https": 443}
"""Schemes of servers, and their ports."""

_REACH_SECONDS = 5.0
"""Longest wait for a connection to a server."""

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Environment variables that turn off telemetry, jobs and pickles, and shorten timeouts."""

_FIRST_ROWS = frozenset({"alembic_version", "workspaces"})
"""Tables that have rows before MLflow has created the database completely."""

_AMBIENT = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_CONTEXT")
"""Variables that name a run of the caller, to which MLflow would redirect the runs of a sweep."""


def check(uri: str) -> None:
    """Check that a tracking URI is one of MLflow's.

    Raises:
        BadInput: `uri` names neither a database nor a server. MLflow no longer writes to a folder of files.
    """
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme not in (*_DATABASES, *_SERVERS):
        raise BadInput(
            "MLFLOW_TRACKING_URI",
            "must name a database or a server",
            f"`{shown(uri)}`",
            "Write sqlite:///mlruns/mlflow.db, postgresql://user@host/database or http://host:5000.",
        )


def is_server(uri: str) -> bool:
    """Return True if MLflow is reached over HTTP, so that its pages are already served."""
    return urlsplit(uri).scheme in _SERVERS


def is_reached(uri: str) -> bool:
    """Return False if MLflow is a server that refuses connections."""
    if not is_server(uri):
        return True
    parts = urlsplit(uri)
    place = parts.hostname or "", parts.port or _SERVERS[parts.scheme]
    try:
        with socket.create_connection(place, timeout=_REACH_SECONDS):
            return True
    except OSError:
        return False


def shown(uri: str) -> str:
    """Return a URI without its user name and password, so that it can be printed."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def sqlite_path(uri: str) -> str | None:
    """Return the path of an SQLite URI, or None for any other kind of store."""
    return unquote(urlsplit(uri).path[1:]) if uri.startswith("sqlite:///") else None


def absolute(uri: str) -> str:
    """Return a URI of the same store that does not depend on the working folder."""
    path = sqlite_path(uri)
    return uri if path is None else sqlite_url(Path(path).absolute())


def migration_lock(database: Path) -> Path:
    """Return the file that is locked while an SQLite database of MLflow is created or migrated."""
    return database.with_name(f"{database.name}.lock")


def is_created(database: Path) -> bool:
    """Return False for an SQLite database that is missing or incomplete, as after a killed process.

    An incomplete database has no rows, so it can be replaced without loss.

    Raises:
        sqlite3.Error: The file is not a database.
    """
    if not database.exists():
        return False
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        quoted = (name.replace('"', '""') for (name,) in names if name not in _FIRST_ROWS)
        return any(connection.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone() for name in quoted)


def environment() -> dict[str, str]:
    """Return the environment of a process that imports MLflow: that of this process, and `SETTINGS`."""
    root = str(Path(__file__).resolve().parents[2])
    inherited = {name: value for name, value in os.environ.items() if name not in _AMBIENT}
    path = os.pathsep.join(part for part in (root, inherited.get("PYTHONPATH", "")) if part)
    return {**inherited, **SETTINGS, "PYTHONPATH": path}
