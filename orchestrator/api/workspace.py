"""Folders and addresses of a call of the API."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.client.names import no_trial
from orchestrator.ledger.connect import database_file, is_file, parse
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import TrialRecord, sweep_id_of
from orchestrator.storage.paths import DEFAULT_DATA, Paths
from orchestrator.tracking import ui
from orchestrator.tracking.address import shown, sqlite_path
from orchestrator.tracking.mlflow_private import latest_experiment, runs_of_experiment


@dataclass(frozen=True)
class Workspace:
    """Folders of sweeps and data sets.

    Attributes:
        paths: Files and folders under the root, and addresses from the environment.
        data: Folder of the data sets.
    """

    paths: Paths
    data: Path

    @classmethod
    def at(cls, root: str | Path | None = None, data: str | Path | None = None) -> Workspace:
        """Return a workspace without creating its folders.

        `SWEEP_LEDGER`, `MLFLOW_TRACKING_URI`, `JAX_COMPILATION_CACHE_DIR` and `SWEEP_CHECKPOINTS` override
        the places of the ledger, MLflow, compiled programs and checkpoints.

        Args:
            root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
            data: Folder of the data sets; `SWEEP_DATA` or else `data` if None.
        """
        return cls(Paths.at(root), Path(data or os.environ.get("SWEEP_DATA") or DEFAULT_DATA).absolute())

    @property
    def tracking_server(self) -> str | None:
        """Address of the shared MLflow without its password, or None if MLflow is under the root."""
        return shown(self.paths.tracking) if self.paths.tracking else None

    def has_ledger(self) -> bool:
        """Return True if the ledger is an existing file, or on a database server.

        Raises:
            BadInput: The address of the ledger is neither a SQLite file nor a PostgreSQL database.
        """
        address = parse(self.paths.ledger_url)
        return not is_file(address) or database_file(address).exists()

    @contextmanager
    def ledger(self, *, create: bool = False) -> Iterator[Ledger]:
        """Open the ledger for a `with` block.

        Args:
            create: Whether to create a missing ledger.

        Raises:
            BadInput: The ledger does not exist.
        """
        ledger = Ledger.open(self.paths.ledger_url, create=create)
        try:
            yield ledger
        finally:
            ledger.close()

    @contextmanager
    def mlflow(self) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """Run MLflow's server for a `with` block; yield its process and its Unix socket.

        Creates the root and the MLflow database if missing. Other accounts cannot reach the socket.

        Raises:
            BadInput: MLflow is a server with pages of its own.
        """
        self.paths.create()
        with ui.serving(self.paths.tracking_uri, self.paths.artifacts) as served:
            yield served

    @property
    def mlflow_page(self) -> str:
        """Page of MLflow with the runs of the newest experiment, relative to its server; '' if unknown."""
        path = sqlite_path(self.paths.tracking_uri)
        experiment = None if path is None else latest_experiment(Path(path))
        return "" if experiment is None else runs_of_experiment(experiment)


def trial_named(ledger: Ledger, key: str) -> TrialRecord:
    """Return the trial with a key.

    Raises:
        NotFound: The ledger has no such trial.
    """
    try:
        return ledger.trial(key)
    except KeyError:
        keys = [trial.key for trial in ledger.trials(sweep_id_of(key))]
        raise no_trial(key, keys) from None
