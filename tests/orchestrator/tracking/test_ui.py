"""MLflow's server answers this account alone, and no process of it outlives its end."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from orchestrator.errors import BadInput
from orchestrator.tracking import ui
from orchestrator.tracking.address import environment

NOBODY = 65534
PYTHON = Path("/usr/bin/python3")
"""A Python that other accounts may run, which those of a home folder are not."""

CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


def test_the_server_answers_on_a_socket_and_no_port() -> None:
    command = ui.command(Path("mlruns/artifacts"), Path("/tmp/a folder/s"))
    joined = " ".join(command)
    assert "--uvicorn-opts --uds '/tmp/a folder/s'" in joined
    assert "--allowed-hosts localhost" in joined
    assert "--host" not in joined
    assert "--port" not in joined


@pytest.mark.skipif(os.geteuid() != 0 or not PYTHON.exists(), reason="becomes another account")
def test_no_other_account_reaches_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(uri: str, artifacts: Path, address: Path) -> subprocess.Popen[bytes]:
        code = "import os, socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]);"
        code += "os.chmod(sys.argv[1], 0o666); s.listen(); print(flush=True); time.sleep(60)"
        command = [sys.executable, "-c", code, str(address)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert server.stdout is not None
        server.stdout.readline()
        return server

    monkeypatch.setattr(ui, "start", started)
    with ui.serving(f"sqlite:///{tmp_path}/mlflow.db", tmp_path) as (server, address):
        command = [str(PYTHON), "-I", "-S", "-c", CONNECT, str(address)]
        assert subprocess.run(command, check=False).returncode == 0
        refused = subprocess.run(
            command, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", check=False, capture_output=True
        )
        assert b"PermissionError" in refused.stderr
    assert not address.exists()
    if server.stdout is not None:
        server.stdout.close()


def test_a_server_is_not_served_again(tmp_path: Path) -> None:
    with (
        pytest.raises(BadInput, match="Open http://host:5000 instead") as refused,
        ui.serving("http://me:canary@host:5000", tmp_path),
    ):
        pass
    assert "canary" not in str(refused.value)


def test_mlflow_runs_without_jobs_pickles_or_telemetry() -> None:
    settings = environment()
    assert settings["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert settings["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"
    assert settings["MLFLOW_DISABLE_TELEMETRY"] == "true"


@pytest.mark.slow
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


@pytest.mark.slow
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
    with pytest.raises(BadInput, match=r"must be MLflow's database \(got file is not a database\)"):
        ui.start(f"sqlite:///{tmp_path}/mlflow.db", tmp_path, tmp_path / "s")
