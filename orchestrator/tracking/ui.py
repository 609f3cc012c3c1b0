"""Serve MLflow's own UI, to this machine only."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from filelock import FileLock

from orchestrator.errors import BadInput
from orchestrator.system import handled
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


def command(artifacts: Path, port: int) -> list[str]:
    """Return the command of the server: one worker, on loopback, that refuses other host names.

    The address of its database is a variable, `STORE`: every user of the machine can read a command line.
    """
    return [
        sys.executable,
        *("-m", "mlflow", "server"),
        *("--default-artifact-root", artifacts.absolute().as_uri()),
        "--no-serve-artifacts",
        *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--allowed-hosts", f"127.0.0.1:{port},localhost:{port}"),
        *("--cors-allowed-origins", f"http://127.0.0.1:{port},http://localhost:{port}"),
    ]


def start(tracking_uri: str, artifacts: Path, port: int) -> subprocess.Popen[bytes]:
    """Start the server, in a process group of its own because it starts workers that would outlive it."""
    if not _is_ready(tracking_uri):
        prepare = [sys.executable, "-m", "orchestrator.tracking.database", tracking_uri]
        subprocess.run(prepare, env=environment(), check=True)
    variables = {**environment(), STORE: tracking_uri}
    return subprocess.Popen(command(artifacts, port), env=variables, start_new_session=True)


def stop(server: subprocess.Popen[bytes]) -> None:
    """End the server and everything it started."""
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
        BadInput: the file is no database.
    """
    path = sqlite_path(tracking_uri)
    if path is None:
        return True
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(migration_lock(file)):
        try:
            return is_created(file)
        except sqlite3.DatabaseError as error:
            remedy = "`sweep recover --mlflow` restores it."
            raise BadInput(str(file), "must be MLflow's database", str(error), remedy) from error


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group; return False if the group has no process."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def serve(tracking_uri: str, artifacts: Path, port: int) -> int:
    """Serve until the server ends, or until SIGINT or SIGTERM; return the exit code.

    Raises:
        BadInput: the port is taken, MLflow is already served elsewhere, or the file is no database.
    """
    if is_server(tracking_uri):
        where = shown(tracking_uri)
        raise BadInput(
            "MLFLOW_TRACKING_URI", "must name a database to serve", where, f"Open {where} instead."
        )
    if not _is_free(port):
        raise BadInput("--port", "must be free on 127.0.0.1", str(port), f"Try --port {port + 1}.")
    server = start(tracking_uri, artifacts, port)
    for name in handled():
        signal.signal(name, signal.default_int_handler)
    try:
        return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        stop(server)
