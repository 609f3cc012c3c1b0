"""The servers that `make up` starts refuse strangers, and a sweep on them equals one on a local disk."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import psutil
import pytest
import requests
from moto.server import ThreadedMotoServer

from benchmarks.faults.site import MEASURED, Site
from orchestrator.ledger.ledger import Ledger
from tests import postgres
from tests.end_to_end.commands import ROOT

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(postgres.binaries() is None, reason="needs PostgreSQL (Debian: postgresql)"),
]
DEATH_SECONDS = 30.0
"""Longest time for a killed server to disappear from the process table of a busy machine."""

SEARCH = "/api/2.0/mlflow/experiments/search?max_results=5"


@dataclass(frozen=True)
class Stores:
    """The servers that `make up` has started.

    Attributes:
        folder: folder of all their files.
        mlflow: address of the MLflow server.
        password: password of MLflow's administrator.
        environment: variables that `make up` prints for a sweep.
    """

    folder: Path
    mlflow: str
    password: str
    environment: dict[str, str]


@pytest.fixture(scope="module")
def stores() -> Iterator[Stores]:
    """Start the servers as `make up` does, on free ports."""
    folder = Path(tempfile.mkdtemp(prefix="stores-"))
    database, mlflow = _free_port(), _free_port()
    own = {"STORES": str(folder), "POSTGRES_PORT": str(database), "MLFLOW_PORT": str(mlflow)}
    environment = {**os.environ, **own, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [str(ROOT / "cluster" / "stores.sh")]
    printed = _up(command, environment)
    password = (folder / "mlflow-password").read_text().strip()
    # A dead MLflow is started again while PostgreSQL keeps running.
    server = psutil.Process(int((folder / "mlflow.pid").read_text()))
    os.killpg(server.pid, signal.SIGKILL)
    server.wait(DEATH_SECONDS)
    assert _up(command, environment) == printed
    yield Stores(folder, f"http://127.0.0.1:{mlflow}", password, printed)
    subprocess.run([*command, "down"], env=environment, check=True)
    shutil.rmtree(folder)


def _up(command: list[str], environment: dict[str, str]) -> dict[str, str]:
    up = subprocess.run([*command, "up"], env=environment, capture_output=True, text=True, check=True)
    return dict(re.findall(r"(\w+)=(\S+)", up.stdout))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_strangers_are_refused(stores: Stores) -> None:
    """MLflow refuses requests without a user or with a wrong one, from other sites, and for a forged host."""
    administrator = ("admin", stores.password)
    for page in ("/", SEARCH, "/api/2.0/mlflow-artifacts/artifacts"):
        assert requests.get(stores.mlflow + page, timeout=30).status_code == 401
        assert requests.get(stores.mlflow + page, auth=("admin", "guess"), timeout=30).status_code == 401
    assert requests.get(stores.mlflow + SEARCH, auth=administrator, timeout=30).status_code == 200
    forged = requests.get(
        stores.mlflow + SEARCH, auth=administrator, headers={"Host": "evil.example"}, timeout=30
    )
    assert forged.status_code == 403
    create = f"{stores.mlflow}/api/2.0/mlflow/experiments/create"
    foreign = {"Origin": "http://evil.example"}
    created = requests.post(create, json={"name": "x"}, auth=administrator, headers=foreign, timeout=30)
    assert created.status_code == 403
    jobs = f"{stores.mlflow}/ajax-api/3.0/jobs"
    assert requests.post(jobs, json={"job_name": "x"}, auth=administrator, timeout=30).status_code == 404


def test_the_roles_of_the_database_may_do_no_more_than_they_need(stores: Stores) -> None:
    port = urlsplit(stores.environment["SWEEP_LEDGER"]).port
    passwords = {"sweep": "postgres-password", "mlflow": "runs-password"}

    def asked(role: str, database: str, command: str) -> str:
        """Return what the database says to a role, or what it refuses."""
        place = ["-h", "127.0.0.1", "-p", str(port), "-U", role, "-d", database]
        own = {"PGPASSWORD": (stores.folder / passwords.get(role, "postgres-password")).read_text().strip()}
        done = subprocess.run(
            ["psql", "-qtAXw", *place, "-c", command],
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            check=False,
        )
        return (done.stdout or done.stderr).strip()

    rights = "SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls FROM pg_roles"
    for role, database, other in (("sweep", "sweeps", "mlflow"), ("mlflow", "mlflow", "sweeps")):
        assert asked(role, database, f"{rights} WHERE rolname = current_user") == "f|f|f|f|f"
        assert asked(role, database, "CREATE TABLE one (n int); DROP TABLE one") == ""
        for refused in ("CREATE DATABASE more", "CREATE ROLE more", "COPY pg_class TO PROGRAM 'true'"):
            assert re.search("permission denied|must be superuser", asked(role, database, refused)), refused
        assert "permission denied" in asked(role, database, "SELECT pg_read_file('PG_VERSION')")
        assert "permission denied" in asked(role, other, "SELECT 1")
        assert "permission denied" in asked(role, "postgres", "SELECT 1")
    assert "password authentication failed" in asked("postgres", "postgres", "SELECT 1")


def test_servers_listen_on_the_loopback_alone_and_no_command_line_holds_a_password(stores: Stores) -> None:
    addresses = (stores.mlflow, stores.environment["SWEEP_LEDGER"])
    ports = {urlsplit(address).port for address in addresses}
    connections = psutil.net_connections("tcp")
    listening = [entry.laddr for entry in connections if entry.status == psutil.CONN_LISTEN]
    assert {address.ip for address in listening if address.port in ports} == {"127.0.0.1"}
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    for secret in stores.folder.glob("*-password"):
        assert secret.stat().st_mode & 0o777 == 0o600
        assert not any(secret.read_text().strip() in command for command in commands)


@pytest.mark.ray
def test_the_same_sweep_over_shared_stores(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger on PostgreSQL, an MLflow server and checkpoints on S3 give the same trials and curves."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "planted-id", "AWS_SECRET_ACCESS_KEY": "planted-secret"}
    s3: dict[str, Any] = {"endpoint_url": f"http://{host}:{port}", "region_name": "us-east-1"}
    s3 |= {"aws_access_key_id": "planted-id", "aws_secret_access_key": "planted-secret"}
    client = boto3.client("s3", **s3)
    client.create_bucket(Bucket="sweeps")
    variables = {
        **stores.environment,
        **keys,
        "AWS_ENDPOINT_URL": s3["endpoint_url"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "SWEEP_CHECKPOINTS": "s3://sweeps/checkpoints",
        "MLFLOW_TRACKING_USERNAME": "admin",
        "MLFLOW_TRACKING_PASSWORD": stores.password,
    }
    local = Site(tmp_path, "local").write(trials=4)
    code, output = local.finished()
    assert code == 0, output
    remote = Site(tmp_path, "remote").write(trials=4)
    code, output = remote.finished(**variables)
    assert code == 0, output
    monkeypatch.setenv("PGPASSFILE", stores.environment["PGPASSFILE"])
    ledger = Ledger.open(stores.environment["SWEEP_LEDGER"])
    (sweep,) = ledger.sweeps()
    assert _outcome(ledger, sweep.id) == _outcome(local.ledger, local.id)
    code, output = remote.run("check", sweep.id, **variables)
    assert code == 0, output
    objects = client.list_objects_v2(Bucket="sweeps", Prefix=f"checkpoints/{ledger.id}/")["Contents"]
    assert {entry["Key"].rpartition("/")[0] for entry in objects} == {
        f"checkpoints/{ledger.id}/{sweep.id}/{row.trial_key}/{Path(row.path).name}"
        for row in ledger.checkpoints(sweep.id)
    }
    database = (stores.folder / "postgres-password").read_text().strip()
    _check_in_no_file([*keys.values(), stores.password, database], tmp_path)
    ledger.close()
    server.stop()


def _outcome(ledger: Ledger, sweep_id: str) -> dict[str, Any]:
    """Return the parameters, state, value and curve of each trial, without what depends on the machine."""
    curves: dict[str, list[Any]] = {}
    for report in ledger.reports(sweep_id):
        kept = {name: value for name, value in report.metrics.items() if not MEASURED.search(name)}
        curves.setdefault(report.trial_key, []).append((report.step, kept))
    trials = ledger.trials(sweep_id)
    return {trial.key: (trial.params, trial.state, trial.value, curves[trial.key]) for trial in trials}


def _check_in_no_file(secrets: list[str], folder: Path) -> None:
    for secret in secrets:
        search = ["grep", "-rlaF", secret, str(folder)]
        assert subprocess.run(search, capture_output=True, text=True, check=False).stdout == ""
