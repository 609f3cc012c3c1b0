"""MLflow's server, without authentication, on a Unix socket in a private folder."""

from __future__ import annotations

import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import BadInput
from orchestrator.tracking.address import (
    environment,
    is_created,
    is_server,
    migration_lock,
    shown,
    sqlite_path,
)

STORE = "MLFLOW_BACKEND_STORE_URI"
"""Environment variable of an MLflow server: the address of its database, which may hold a password."""

_GOODBYE_SECONDS = 5.0


HOST = "localhost"
"""The only name under which the server answers."""


def command(artifacts: Path, address: Path) -> list[str]:
    """Return the command of the server: one worker, on a Unix socket, that refuses other host names.

    The environment variable `STORE` holds the address of its database, because every user of the machine can
    read a command line.
    """
    return [
        sys.executable,
        *("-m", "mlflow", "server"),
        *("--default-artifact-root", artifacts.absolute().as_uri()),
        "--no-serve-artifacts",
        *("--uvicorn-opts", f"--uds {shlex.quote(str(address))}"),
        *("--workers", "1", "--allowed-hosts", HOST, "--cors-allowed-origins", f"http://{HOST}"),
    ]


def start(tracking_uri: str, artifacts: Path, address: Path) -> subprocess.Popen[bytes]:
    """Start the server in its own process group, because its workers would outlive it."""
    if not _is_ready(tracking_uri):
        prepare = [sys.executable, "-m", "orchestrator.tracking.database", tracking_uri]
        subprocess.run(prepare, env=environment(), check=True)
    variables = {**environment(), STORE: tracking_uri}
    return subprocess.Popen(command(artifacts, address), env=variables, start_new_session=True)


def stop(server: subprocess.Popen[bytes]) -> None:
    """End the server and its child processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(server.pid, number)
        deadline = time.monotonic() + _GOODBYE_SECONDS
        while time.monotonic() < deadline:
            server.poll()  # reaps the server, which would otherwise count as a member of its group
            if not _signal(server.pid, 0):
                return
            time.sleep(0.05)


def _is_ready(tracking_uri: str) -> bool:
    """Return True if the database has been created; wait while another process creates it.

    Raises:
        BadInput: The file is not a database.
    """
    path = sqlite_path(tracking_uri)
    if path is None:
        return True
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    from filelock import FileLock  # verbs that only read the ledger import this module too

    with FileLock(migration_lock(file)):
        try:
            return is_created(file)
        except sqlite3.DatabaseError as error:
            remedy = "`sweep mlflow rebuild` restores it."
            raise BadInput(str(file), "must be MLflow's database", str(error), remedy) from error


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group; return False if the group has no process."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def serving(tracking_uri: str, artifacts: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run the server during a `with` block; yield the process and the file of its socket.

    Raises:
        BadInput: MLflow is already served elsewhere, or the file is not a database.
    """
    if is_server(tracking_uri):
        where = shown(tracking_uri)
        raise BadInput(
            "MLFLOW_TRACKING_URI", "must name a database to serve", where, f"Open {where} instead."
        )
    with tempfile.TemporaryDirectory(prefix="sweep-ui-") as folder:  # with mode 0700
        server = start(tracking_uri, artifacts, Path(folder) / "s")
        try:
            yield server, Path(folder) / "s"
        finally:
            stop(server)
