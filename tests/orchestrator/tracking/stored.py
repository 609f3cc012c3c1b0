"""The content of an MLflow store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlflow.tracking import MlflowClient

NewDatabase = Callable[[Path], str]
"""Puts an empty MLflow database into a folder and returns its URI; see `new_mlflow`."""


def points_by_run(uri: str) -> dict[str, int]:
    """Return the number of points of each run by its name; each name must occur once."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("retrieval")
    runs = client.search_runs([experiment.experiment_id])
    points = {
        run.info.run_name: sum(
            len(client.get_metric_history(run.info.run_id, name)) for name in run.data.metrics
        )
        for run in runs
    }
    assert len(points) == len(runs)
    return points
