"""Options that several verbs share, with one wording."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.ledger.ledger import Ledger
from orchestrator.storage.paths import Paths

SweepId = Annotated[str, typer.Argument(metavar="SWEEP", help="A sweep's id, or the beginning of it.")]
Root = Annotated[
    Path,
    typer.Option("--root", envvar="SWEEP_ROOT", help="Folder of all that sweeps write."),
]
Data = Annotated[Path, typer.Option("--data", envvar="SWEEP_DATA", help="Folder of the data sets.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Patience = Annotated[
    float,
    typer.Option(
        "--tracking-patience",
        envvar="SWEEP_TRACKING_PATIENCE",
        help="Seconds to wait for MLflow at the end; what it has not taken then waits in the ledger.",
    ),
]
DEFAULT_ROOT = Path("mlruns")
DEFAULT_DATA = Path("data")


def paths(root: Path) -> Paths:
    """Return the paths under `root`; the environment may name ledger, MLflow, JAX's cache and checkpoints."""
    named = os.environ.get
    cache = named("JAX_COMPILATION_CACHE_DIR")
    return Paths(
        root.absolute(),
        named("SWEEP_LEDGER"),
        named("MLFLOW_TRACKING_URI"),
        Path(cache) if cache else None,
        named("SWEEP_CHECKPOINTS") or None,
    )


def opened(root: Path) -> Ledger:
    """Return the ledger under `root`.

    Raises:
        BadInput: if there is none; looking must not make one.
    """
    return Ledger.open(paths(root).ledger_url, create=False)
