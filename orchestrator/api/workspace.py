"""Folders and addresses of a call of the API."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import Counter
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

MOST_KEPT = 8
"""Number of unused ledgers that stay open; each has one connection to its database."""


class _KeptLedgers:
    """Open ledgers that no block uses, by URL; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keepers = Counter[str]()
        self._unused: dict[str, list[Ledger]] = {}

    @contextmanager
    def of(self, url: str) -> Iterator[None]:
        """Keep the ledgers of a URL for a `with` block."""
        with self._lock:
            self._keepers[url] += 1
        try:
            yield
        finally:
            with self._lock:
                self._keepers[url] -= 1
                unused = [] if self._keepers[url] else self._unused.pop(url, [])
            for ledger in unused:
                ledger.close()

    def taken(self, url: str) -> Ledger | None:
        """Return a kept ledger that `Ledger.open` would still return, or None."""
        with self._lock:
            ledger = unused.pop() if (unused := self._unused.get(url)) else None
        if ledger is None or ledger.opens_again():
            return ledger
        with self._lock:
            others = self._unused.pop(url, [])  # not tried in turn: each would wait for a server that is lost
        for each in (ledger, *others):
            each.close()
        return None

    def given_back(self, url: str, ledger: Ledger) -> None:
        """Keep a ledger, or close it."""
        with self._lock:
            unused = self._unused.setdefault(url, []) if self._keepers[url] else None
            if unused is not None and len(unused) < MOST_KEPT:
                unused.append(ledger)
                return
        ledger.close()


_KEPT = _KeptLedgers()


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
        url = self.paths.ledger_url
        ledger = _KEPT.taken(url) or Ledger.open(url, create=create)
        try:
            yield ledger
        finally:
            _KEPT.given_back(url, ledger)

    @contextmanager
    def keeping_ledgers(self) -> Iterator[None]:
        """Keep up to `MOST_KEPT` ledgers open between the blocks of `ledger`, within a `with` block.

        A service answers each request in such a block, and opening a ledger takes longer than most requests.
        Each block has its own ledger, which shows the same as a newly opened one.
        """
        with _KEPT.of(self.paths.ledger_url):
            yield

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
