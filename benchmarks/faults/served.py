"""A sweep whose ledger, MLflow and checkpoints are on servers of this machine: PostgreSQL, MLflow, S3."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import cached_property, partial
from pathlib import Path

import boto3

from benchmarks.faults.site import Site, until
from orchestrator.ledger.ledger import Ledger
from orchestrator.tracking import ui
from orchestrator.tracking.address import environment
from orchestrator.tracking.database import connect

KEYS = {
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}


class ServedSite(Site):
    """A site whose ledger is on PostgreSQL, with an MLflow server and checkpoints on S3."""

    def __init__(self, folder: Path, name: str, ledger_url: str) -> None:
        super().__init__(folder, name)
        self.root.mkdir()
        self._ledger_url, store, tracking = ledger_url, _free_port(), _free_port()
        self.environment = {
            **KEYS,
            "SWEEP_LEDGER": ledger_url,
            "SWEEP_CHECKPOINTS": "s3://sweeps/checkpoints",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{store}",
            "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{tracking}",
        }
        moto = Path(sys.executable).with_name("moto_server")
        self.store = _served([str(moto), "-H", "127.0.0.1", "-p", str(store)], store)
        own = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=self.environment["AWS_ENDPOINT_URL"], **own)
        client.create_bucket(Bucket="sweeps")
        uri = f"sqlite:///{self.root / 'mlflow.db'}"
        connect(uri)
        self.tracking = _served(ui.command(uri, self.root / "artifacts", tracking), tracking)

    @cached_property
    def ledger(self) -> Ledger:  # type: ignore[override]
        """The ledger that the commands write to."""
        return Ledger.open(self._ledger_url)

    def reports(self) -> int:
        """Return the number of reports in the ledger."""
        return sum(len(self.ledger.reports(sweep.id)) for sweep in self.ledger.sweeps())

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command that uses the three servers."""
        return super().start(*arguments, **self.environment, **environment)

    def end(self) -> None:
        """End the servers, and kill what is left of the sweep."""
        self.ledger.close()
        for server in (self.store, self.tracking):
            ui.stop(server)
        for process in self.alive():
            if process.pid != os.getpid():
                process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _served(command: list[str], port: int) -> subprocess.Popen[bytes]:
    """Start a server and wait until it answers."""
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(command, env=environment(), start_new_session=True, stdout=quiet, stderr=quiet)
    until(partial(_answers, port))
    return server


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
