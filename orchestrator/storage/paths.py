"""The paths of all files and folders of the service."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.accounts import umask
from trainables.durable import DIGITS, make_folder

DEFAULT_ROOT = Path("mlruns")
"""Folder of everything that sweeps write."""

DEFAULT_DATA = Path("data")
"""Folder of the data sets."""


@dataclass(frozen=True)
class Paths:
    """The paths and addresses of one installation.

    Example:

        paths = Paths.at("mlruns")
        paths.checkpoints("retrieval-laptop-1f6f3a2b")

    Attributes:
        root: Folder of everything that a sweep writes, by default `mlruns`.
        database: SQLAlchemy URL of a shared ledger, or None for SQLite under `root`.
        tracking: URI of a shared MLflow server, or None for SQLite under `root`.
        cache: Folder of JAX's persistent compilation cache, or None for one under `root`.
        store: URL of the checkpoint store that every node can reach, or None for `root` only.
    """

    root: Path
    database: str | None = None
    tracking: str | None = None
    cache: Path | None = None
    store: str | None = None

    @classmethod
    def at(cls, root: str | Path | None = None) -> Paths:
        """Return the paths under a root folder; nothing is created.

        `SWEEP_LEDGER`, `MLFLOW_TRACKING_URI`, `JAX_COMPILATION_CACHE_DIR` and `SWEEP_CHECKPOINTS` override
        the paths under the root.

        Args:
            root: Root folder; if None, `SWEEP_ROOT` or else `mlruns`.
        """
        environment = os.environ
        cache = environment.get("JAX_COMPILATION_CACHE_DIR")
        return cls(
            Path(root or environment.get("SWEEP_ROOT") or DEFAULT_ROOT).absolute(),
            environment.get("SWEEP_LEDGER"),
            environment.get("MLFLOW_TRACKING_URI"),
            Path(cache).absolute() if cache else None,
            environment.get("SWEEP_CHECKPOINTS") or None,
        )

    @property
    def ledger_url(self) -> str:
        """SQLAlchemy URL of the ledger."""
        return self.database or sqlite_url(self.root / "sweeps.db")

    @property
    def tracking_uri(self) -> str:
        """URI to which MLflow clients write."""
        return self.tracking or sqlite_url(self.root / "mlflow.db")

    @property
    def artifacts(self) -> Path:
        """Root folder of MLflow's artifacts."""
        return self.root / "artifacts"

    @property
    def ray(self) -> Path:
        """Folder of Ray Tune's own state, which is never read back."""
        return self.root / "ray"

    @property
    def token(self) -> Path:
        """Token file of a Ray that the driver starts."""
        return self.root / "ray-token"

    @property
    def service(self) -> Path:
        """File that names the service process of this root."""
        return self.root / "serve.json"

    @property
    def notices(self) -> Path:
        """File with the targets of notifications by owner, which are secrets and not in the ledger."""
        return self.root / "notices.json"

    @property
    def compilations(self) -> Path:
        """JAX's persistent compilation cache, shared by the workers of this machine."""
        return self.cache or self.root / "compilations"

    def checkpoints(self, sweep_id: str) -> Path:
        """Return the folder of all checkpoints of a sweep."""
        return self.root / "checkpoints" / sweep_id

    def trial_checkpoints(self, sweep_id: str, trial_key: str) -> Path:
        """Return the folder of one trial's checkpoints."""
        return self.checkpoints(sweep_id) / trial_key

    def stored(self, ledger_id: str, sweep_id: str, trial_key: str) -> str | None:
        """Return the URL of one trial's checkpoints in the store, or None without a store.

        The random id of the ledger separates ledgers that share a store.
        """
        return f"{self.store.rstrip('/')}/{ledger_id}/{sweep_id}/{trial_key}" if self.store else None

    def at_hand(self, sweep_id: str, trial_key: str, recorded: str) -> Path:
        """Return the local folder of a recorded checkpoint, which another machine may have written."""
        if self.store is None:
            return Path(recorded)
        return self.trial_checkpoints(sweep_id, trial_key) / Path(recorded).name

    def log(self, sweep_id: str, trial_key: str) -> Path:
        """Return the log file of a trial's workers."""
        return self.root / "logs" / sweep_id / f"{trial_key}.log"

    def driver_log(self, sweep_id: str) -> Path:
        """Return the log file of a sweep's detached drivers."""
        return self.root / "logs" / sweep_id / "driver.log"

    def report(self, sweep_id: str) -> Path:
        """Return the folder of a sweep's report."""
        return self.root / "reports" / sweep_id

    def code(self, sweep_id: str) -> Path:
        """Return the folder with archives of the code that a sweep ran."""
        return self.report(sweep_id) / "code"

    def create(self) -> None:
        """Create the folders that must exist before a database is opened in them."""
        is_new = not self.root.is_dir()
        make_folder(self.root)
        if is_new:
            self.root.chmod(0o777 & ~umask())
        self.artifacts.mkdir(exist_ok=True)


def checkpoint_stem(step: int, attempt: int) -> str:
    """Return the name of an attempt's checkpoint without its digest; names sort like their steps."""
    return f"step-{step:09d}-{attempt}"


def attempt_of(name: str) -> int:
    """Return the number of the attempt that wrote a checkpoint folder, or 0 for any other folder."""
    match = _CHECKPOINT_NAME.fullmatch(name)
    return int(match["attempt"]) if match else 0


_CHECKPOINT_NAME = re.compile(rf"step-\d{{9,}}-(?P<attempt>\d+)-[0-9a-f]{{{DIGITS}}}")


def sqlite_url(file: Path) -> str:
    """Return the SQLAlchemy URL of a SQLite file.

    Only the characters that would end the path are quoted. SQLAlchemy accepts any quoted character, but
    MLflow creates the folder of the path without unquoting it, so a quoted space would create a second
    folder.
    """
    path = str(file)
    for character in "%?#":
        path = path.replace(character, f"%{ord(character):02X}")
    return f"sqlite:///{path}"
