"""Known results from an experiment of MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from orchestrator.errors import BadInput
from orchestrator.tracking.known_runs import rows_of_experiment
from tests.orchestrator.tracking.conftest import NewDatabase


def test_finished_runs_are_read(tmp_path: Path, new_mlflow: NewDatabase) -> None:
    tracking = new_mlflow(tmp_path)
    client = MlflowClient(tracking)
    experiment = client.create_experiment("mine", artifact_location=str(tmp_path / "artifacts"))
    for status, rate in (("FINISHED", 1e-3), ("FAILED", 1e-2), ("FINISHED", 2e-3)):
        run = client.create_run(experiment)
        client.log_param(run.info.run_id, "learning_rate", rate)
        for step, loss in enumerate((0.9, 100 * rate)):
            client.log_metric(run.info.run_id, "val/loss", loss, step=step)
        client.set_terminated(run.info.run_id, status)
    rows = rows_of_experiment(tracking, "mine")
    assert sorted(rows, key=lambda row: row["val/loss"]) == [
        {"learning_rate": "0.001", "val/loss": 0.1},
        {"learning_rate": "0.002", "val/loss": 0.2},
    ]


def test_an_unknown_experiment_is_refused(tmp_path: Path, new_mlflow: NewDatabase) -> None:
    with pytest.raises(BadInput, match="must name an experiment of MLflow"):
        rows_of_experiment(new_mlflow(tmp_path), "mine")
