"""The folders and addresses that a call of the API works on, and the sweeps and trials named in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import BadInput
from orchestrator.ledger.connect import database_file, is_file, parse
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import TrialRecord, sweep_id_of
from orchestrator.storage.paths import DEFAULT_DATA, Paths
from orchestrator.tracking import ui
from orchestrator.tracking.address import shown


@dataclass(frozen=True)
class Workspace:
    """Where sweeps are written and data sets are read.

    Attributes:
        paths: The files and folders under the root, and the addresses that the environment names.
        data: Folder of the data sets.
    """

    paths: Paths
    data: Path

    @classmethod
    def at(cls, root: str | Path | None = None, data: str | Path | None = None) -> Workspace:
        """Return a workspace. Nothing is created.

        `SWEEP_LEDGER`, `MLFLOW_TRACKING_URI`, `JAX_COMPILATION_CACHE_DIR` and `SWEEP_CHECKPOINTS` replace
        the places under the root that they name.

        Args:
            root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
            data: Folder of the data sets; `SWEEP_DATA` or else `data` if None.
        """
        return cls(Paths.at(root), Path(data or os.environ.get("SWEEP_DATA") or DEFAULT_DATA).absolute())

    @property
    def tracking_server(self) -> str | None:
        """Return the address of the shared MLflow without its password, or None if it is under the root."""
        return shown(self.paths.tracking) if self.paths.tracking else None

    def has_ledger(self) -> bool:
        """Return True if the ledger is on a database server, or is a file that exists.

        Raises:
            BadInput: The address of the ledger is not one of a SQLite file or a PostgreSQL database.
        """
        address = parse(self.paths.ledger_url)
        return not is_file(address) or database_file(address).exists()

    @contextmanager
    def ledger(self, *, create: bool = False) -> Iterator[Ledger]:
        """Open the ledger for the length of a `with` block.

        Args:
            create: Whether to create a ledger that does not exist.

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
        """Run MLflow's server for the length of a `with` block; yield it and the Unix socket that it has.

        Creates the root and, if there is none yet, an empty MLflow database. No other account reaches the
        socket.

        Raises:
            BadInput: MLflow is a server that has pages of its own.
        """
        self.paths.create()
        with ui.serving(self.paths.tracking_uri, self.paths.artifacts) as served:
            yield served


def trial_named(ledger: Ledger, key: str) -> TrialRecord:
    """Return the trial with this key.

    Raises:
        BadInput: The ledger has no such trial.
    """
    try:
        return ledger.trial(key)
    except KeyError:
        keys = [trial.key for trial in ledger.trials(sweep_id_of(key))]
        remedy = (
            f"The keys of its sweep are {keys[0]} to {keys[-1]}."
            if keys
            else "A key is SWEEP-NUMBER; a number is one of the newest sweep. `list` shows all sweeps."
        )
        raise BadInput(key[:80] or "TRIAL", "is not the key of a trial", "", remedy) from None
