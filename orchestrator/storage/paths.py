"""Every file and folder of the service, named in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True)
class Paths:
    """Where a working directory keeps its sweeps.

    Attributes:
        root: the folder of everything that a sweep writes (`mlruns/` unless told otherwise).
        database: SQLAlchemy URL of a shared ledger, or None for SQLite under `root`.
        tracking: URI of a shared MLflow server, or None for SQLite under `root`.
        cache: folder of JAX's persistent compilation cache, or None for one under `root`.
        store: URL of the checkpoints that every node reaches, or None for those under `root` alone.
    """

    root: Path
    database: str | None = None
    tracking: str | None = None
    cache: Path | None = None
    store: str | None = None

    @property
    def ledger_url(self) -> str:
        """Return the SQLAlchemy URL of the ledger."""
        return self.database or f"sqlite:///{quote(str(self.root / 'sweeps.db'))}"

    @property
    def tracking_uri(self) -> str:
        """Return the URI that MLflow clients write to."""
        return self.tracking or f"sqlite:///{quote(str(self.root / 'mlflow.db'))}"

    @property
    def artifacts(self) -> Path:
        """Return the root of MLflow's artifacts."""
        return self.root / "artifacts"

    @property
    def ray(self) -> Path:
        """Return the folder that Ray Tune writes its own state to; nothing ever reads it back."""
        return self.root / "ray"

    @property
    def token(self) -> Path:
        """Return the file with the token of a Ray of our own."""
        return self.root / "ray-token"

    @property
    def compilations(self) -> Path:
        """Return JAX's persistent compilation cache, shared by the workers of this machine."""
        return self.cache or self.root / "compilations"

    def checkpoints(self, sweep_id: str) -> Path:
        """Return the folder of all checkpoints of a sweep."""
        return self.root / "checkpoints" / sweep_id

    def trial_checkpoints(self, sweep_id: str, trial_key: str) -> Path:
        """Return the folder of one trial's checkpoints."""
        return self.checkpoints(sweep_id) / trial_key

    def stored(self, sweep_id: str, trial_key: str) -> str | None:
        """Return the URL of one trial's checkpoints, or None where they are under `root` alone."""
        return f"{self.store.rstrip('/')}/{sweep_id}/{trial_key}" if self.store else None

    def at_hand(self, sweep_id: str, trial_key: str, recorded: str) -> Path:
        """Return where a recorded checkpoint is, or would be: another machine may have written it."""
        if self.store is None:
            return Path(recorded)
        return self.trial_checkpoints(sweep_id, trial_key) / Path(recorded).name

    def log(self, sweep_id: str, trial_key: str) -> Path:
        """Return the file in which the workers of a trial tell what they did."""
        return self.root / "logs" / sweep_id / f"{trial_key}.log"

    def driver_log(self, sweep_id: str) -> Path:
        """Return the file in which the detached drivers of a sweep tell what they print."""
        return self.root / "logs" / sweep_id / "driver.log"

    def report(self, sweep_id: str) -> Path:
        """Return the folder of a sweep's report."""
        return self.root / "reports" / sweep_id

    def create(self) -> None:
        """Make the folders that must exist before a database is opened in them."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.artifacts.mkdir(exist_ok=True)


def checkpoint_name(step: int) -> str:
    """Return the folder name of the checkpoint at `step`; names sort as their steps do."""
    return f"step-{step:09d}"
