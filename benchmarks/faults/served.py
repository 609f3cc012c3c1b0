"""A sweep whose ledger, MLflow and checkpoints are on servers of this machine: PostgreSQL, MLflow, S3.

A proxy stands before MLflow and before the store, so that either can refuse or swallow what is sent to it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import boto3

from benchmarks.faults.site import Site, until
from orchestrator.ledger.ledger import Ledger
from orchestrator.tracking import ui
from orchestrator.tracking.address import environment
from orchestrator.tracking.database import connect
from tests.orchestrator.tracking.proxy import Proxy, command_on

KEYS = {
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}


BUCKET = "sweeps"


class TrackingServer:
    """An MLflow server behind a proxy, on the database that a site uses by default.

    Args:
        root: Folder of the site.

    Attributes:
        proxy: Proxy in front of the server.
        process: Process of the server.
    """

    def __init__(self, root: Path) -> None:
        self.proxy = _proxy()
        self._database = f"sqlite:///{root / 'mlflow.db'}"
        connect(self._database)
        self._command = command_on(self.proxy.target, root / "artifacts", self.proxy.port)
        self.start()

    @property
    def url(self) -> str:
        """Return the address at which a sweep finds the server."""
        return f"http://127.0.0.1:{self.proxy.port}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self.process = _served(self._command, self.proxy.target, **{ui.STORE: self._database})

    def kill(self) -> None:
        """Kill the server without a clean shutdown."""
        self.process.kill()
        ui.stop(self.process)

    def close(self) -> None:
        """Stop the server, its child processes and the proxy."""
        ui.stop(self.process)
        self.proxy.close()


class ServedSite(Site):
    """A site whose ledger is on PostgreSQL, with an MLflow server and checkpoints on S3.

    Args:
        folder: Folder of all sites of a run.
        name: Name of this site.
        ledger_url: Address of the ledger.
        store_folder: Folder of the store's objects; None for memory.

    Attributes:
        tracking: MLflow server.
        store: Process of the store.
        to_store: Proxy in front of the store.
        objects: Client of the store that bypasses the proxy.
    """

    def __init__(self, folder: Path, name: str, ledger_url: str, store_folder: Path | None = None) -> None:
        super().__init__(folder, name)
        self.root.mkdir()
        self._ledger_url, self.to_store = ledger_url, _proxy()
        self.environment = {
            **KEYS,
            "SWEEP_LEDGER": ledger_url,
            "SWEEP_CHECKPOINTS": f"s3://{BUCKET}/checkpoints",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.to_store.port}",
        }
        moto, port = Path(sys.executable).with_name("moto_server"), self.to_store.target
        on_disk = (
            {"TMPDIR": str(store_folder), "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": "1"} if store_folder else {}
        )
        self.store = _served([str(moto), "-H", "127.0.0.1", "-p", str(port)], port, **on_disk)
        own = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        self.objects: Any = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **own)
        self.objects.create_bucket(Bucket=BUCKET)
        self.tracking = TrackingServer(self.root)
        self.environment["MLFLOW_TRACKING_URI"] = self.tracking.url

    @cached_property
    def ledger(self) -> Ledger:
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
        self.tracking.close()
        ui.stop(self.store)
        self.to_store.close()
        for process in self.alive():
            if process.pid != os.getpid():
                process.kill()


def _proxy() -> Proxy:
    """Return a proxy before a free port."""
    proxy = Proxy()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        proxy.target = int(probe.getsockname()[1])
    proxy.mode = "pass"
    return proxy


def _served(command: list[str], port: int, **variables: str) -> subprocess.Popen[bytes]:
    """Start a server and wait until it answers."""
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(
        command, env={**environment(), **variables}, start_new_session=True, stdout=quiet, stderr=quiet
    )
    until(partial(_answers, port))
    return server


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
