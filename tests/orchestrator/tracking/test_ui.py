"""The UI's command is restrictive, and no process of it outlives its end."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from orchestrator.errors import BadInput
from orchestrator.tracking import ui
from orchestrator.tracking.address import environment


def test_the_server_stays_on_this_machine() -> None:
    command = ui.command(Path("mlruns/artifacts"), 5055)
    joined = " ".join(command)
    assert "--host 127.0.0.1 --port 5055 --workers 1" in joined
    assert "--allowed-hosts 127.0.0.1:5055,localhost:5055" in joined
    assert "0.0.0.0" not in joined


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"--port: must be free on 127.0.0.1, got {port}"):
            ui.serve(f"sqlite:///{tmp_path}/mlflow.db", tmp_path, port)


def test_a_server_is_not_served_again(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Open http://host:5000 instead") as refused:
        ui.serve("http://me:canary@host:5000", tmp_path, 5055)
    assert "canary" not in str(refused.value)


def test_mlflow_runs_without_jobs_pickles_or_telemetry() -> None:
    settings = environment()
    assert settings["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert settings["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"
    assert settings["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_stop_ends_the_whole_group_even_if_it_ignores_the_signal() -> None:
    script = "trap '' TERM; sleep 60 & sleep 60 & wait; wait; sleep 60"
    server = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    while len(psutil.Process(server.pid).children()) < 2:
        time.sleep(0.01)
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children()]
    ui.stop(server)
    assert not [
        process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]


def test_stop_ends_workers_that_a_dead_server_left() -> None:
    server = subprocess.Popen(["sh", "-c", "sleep 60 & exec sleep 60"], start_new_session=True)
    while not psutil.Process(server.pid).children():
        time.sleep(0.01)
    (worker,) = psutil.Process(server.pid).children()
    server.kill()
    ui.stop(server)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(("rows", "is_ready"), [(0, False), (1, True)])
def test_a_database_that_was_left_half_made_is_not_served(tmp_path: Path, rows: int, is_ready: bool) -> None:
    """MLflow's server could not use it, so that it is created anew before."""
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection:
        connection.executescript("CREATE TABLE alembic_version (v); INSERT INTO alembic_version VALUES (1)")
        connection.executescript("CREATE TABLE experiments (name); CREATE TABLE runs (name)")
        connection.executemany("INSERT INTO experiments VALUES (?)", [("Default",)] * rows)
        connection.commit()
    assert ui._is_ready(f"sqlite:///{tmp_path}/mlflow.db") is is_ready


def test_a_file_that_is_no_database_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 1000)
    with pytest.raises(BadInput, match="must be MLflow's database, got file is not a database"):
        ui.start(f"sqlite:///{tmp_path}/mlflow.db", tmp_path, 5055)
