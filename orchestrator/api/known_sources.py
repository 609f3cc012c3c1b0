"""Reading the sources of known results, once, when a search-space file is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.config.known import matched
from orchestrator.config.sweep_config import KnownResults, SweepConfig
from orchestrator.errors import BadInput
from orchestrator.process_secrets import redacted
from orchestrator.storage.paths import sqlite_url
from orchestrator.tracking.known_runs import rows_of_experiment

OPTUNA, MLFLOW = "optuna://", "mlflow://"
_SQLITE = "sqlite:///"


def with_known_results(sweep: SweepConfig, folder: Path) -> SweepConfig:
    """Return a sweep with the results of all its known sources.

    Args:
        sweep: Sweep as in its file.
        folder: Folder of relative paths.

    Raises:
        BadInput: A source cannot be read, or has no result in the space of the search.
    """
    if all(known.results is not None for known in sweep.known):
        return sweep
    return replace(sweep, known=tuple(_read(sweep, known, folder) for known in sweep.known))


def check_read(sweep: SweepConfig) -> None:
    """Check that a sweep holds the results of all its known sources.

    Raises:
        BadInput: A source is not read, because a file from elsewhere names it.
    """
    for known in sweep.known:
        if known.results is None:
            must = "must list its results over HTTP: the service would read the source with its own rights"
            remedy = "Write them into the file: known: [{source: ..., results: [{...}]}]."
            raise BadInput("known", must, redacted(known.source), remedy)


def _read(sweep: SweepConfig, known: KnownResults, folder: Path) -> KnownResults:
    if known.results is not None:
        return known
    rows = _rows(sweep, known.source, folder)
    # The name is stored and shown; a password in it is not.
    found = matched(redacted(known.source), rows, sweep.search, sweep.objectives)
    if not found.results:
        why = "; ".join(f"{count} {cause}" for cause, count in found.left_out.items()) or "no result"
        remedy = f"Give it the columns {', '.join([*sweep.search, *sweep.objective_metrics])}."
        raise BadInput("known", f"{found.source} has no result in the search", why, remedy)
    return replace(found, run=known.run)


def _rows(sweep: SweepConfig, source: str, folder: Path) -> list[dict[str, Any]]:
    # With the readers of studies, which few files need.
    from orchestrator.study.known_results import rows_of_csv, rows_of_study

    if not source.startswith((OPTUNA, MLFLOW)):
        return rows_of_csv(folder / source)
    address, _, name = source.partition("://")[2].partition("#")
    if not name:
        must = "must end with # and the name of a study or an experiment"
        raise BadInput("known", must, redacted(source), f"Write {redacted(source)}#NAME.")
    address = _existing(address, folder)
    if source.startswith(OPTUNA):
        return rows_of_study(address, name, sweep.objectives)
    return rows_of_experiment(address, name)


def _existing(address: str, folder: Path) -> str:
    """Return the address of a database, with an absolute path for a file of this machine.

    Optuna and MLflow would create a missing database.

    Raises:
        BadInput: The database does not exist.
    """
    is_sqlite = address.startswith(_SQLITE)
    if "://" in address and not is_sqlite:
        return address
    path = (folder / address.removeprefix(_SQLITE)).absolute()
    if not path.exists():
        raise BadInput("known", "must name a database that exists", str(path), "Correct the path.")
    return sqlite_url(path) if is_sqlite else str(path)
