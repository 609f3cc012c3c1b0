"""Private interfaces of MLflow; checked with MLflow 3.17.2.

- The tables `runs`, `tags` and `metrics` of MLflow's SQLite database, which `check` reads to compare every
  point. `MlflowClient` would need one call a curve: 29 s for 200 runs of 12 curves with 100 points, where one
  query a run takes 0.3 s. It also creates a missing database, and takes 2.6 s to import.
- The addresses of MLflow's pages, because no link to a set of charts is documented.
- The methods of MLflow's database by which `run_removal` deletes runs and models for good.
- The tag `mlflow.experimentKind`, without which the pages of an experiment open on traces of chats.

`tests/orchestrator/tracking/test_mlflow_private.py` fails when one of these changes. This module does not
import MLflow.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

CHECKED_VERSION = "3.17.2"

EXPERIMENT_KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Tag of an experiment whose pages open on curves."""

Point = tuple[str, int, float]
"""Name, step and value of a point of a curve."""

_RUNS = """
SELECT trial.value, runs.run_uuid, runs.status FROM runs
JOIN tags AS trial ON trial.run_uuid = runs.run_uuid AND trial.key = 'trial.key'
JOIN tags AS parent ON parent.run_uuid = runs.run_uuid AND parent.key = 'mlflow.parentRunId'
JOIN tags AS sweep ON sweep.run_uuid = parent.value AND sweep.key = 'sweep.id' AND sweep.value = ?
JOIN tags AS began ON began.run_uuid = parent.value AND began.key = 'sweep.created' AND began.value = ?
WHERE runs.lifecycle_stage = 'active'
"""
_LATEST = "SELECT experiment_id FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time DESC LIMIT 1"
_POINTS = "SELECT key, step, value FROM metrics WHERE run_uuid = ?"


class StoredRuns:
    """The runs in an SQLite database of MLflow, read without MLflow."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def of_sweep(self, sweep_id: str, created: str) -> dict[str, list[tuple[str, str]]]:
        """Return the run IDs and statuses of each trial of a sweep, by trial key.

        The arguments are the tags `sweep.id` and `sweep.created` of the parent run.
        """
        runs: dict[str, list[tuple[str, str]]] = {}
        for key, run_id, status in self._connection.execute(_RUNS, (sweep_id, created)):
            runs.setdefault(key, []).append((run_id, status))
        return runs

    def points(self, run_id: str) -> list[Point]:
        """Return every stored point of a run."""
        return self._connection.execute(_POINTS, (run_id,)).fetchall()


@contextmanager
def stored_runs(database: Path) -> Iterator[StoredRuns]:
    """Open an SQLite database of MLflow for reading.

    Raises:
        sqlite3.Error: The file does not exist, or is not a database of MLflow.
    """
    with closing(_opened(database)) as connection:
        yield StoredRuns(connection)


def trial_curves(experiment_id: str, sweep_id: str, *, minimize: bool) -> str:
    """Return the address of the charts of a sweep's trials, best trial first, relative to the server's.

    Without the filter, MLflow collapses the trials under their sweep, and charts show only the sweep's run.
    """
    query = {
        "compareRunsMode": "CHART",
        "searchFilter": f"tags.`sweep.id` = '{sweep_id}' and tags.`trial.role` = 'search'",
        "orderByKey": "metrics.`_objective`",
        "orderByAsc": str(minimize).lower(),
    }
    return f"{runs_of_experiment(experiment_id)}&{urlencode(query, quote_via=quote)}"


def runs_of_experiment(experiment_id: str) -> str:
    """Return the address of the table of an experiment's runs, relative to the server's.

    MLflow's first page leads to the traces of an experiment instead.
    """
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning"


def latest_experiment(database: Path) -> str | None:
    """Return the ID of the experiment of the newest run in an SQLite database of MLflow; None without one."""
    if not database.exists():
        return None
    with closing(_opened(database)) as connection:
        try:
            row = connection.execute(_LATEST).fetchone()
        except sqlite3.OperationalError:  # MLflow has not created its tables yet
            return None
    return None if row is None else str(row[0])


def _opened(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True, timeout=30)
