"""Contract with MLflow: fails when something undocumented that the service relies on changes."""

from __future__ import annotations

import sqlite3
from importlib.metadata import version
from pathlib import Path
from urllib.parse import parse_qs

import mlflow
import pytest
from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

from orchestrator.tracking.mlflow_private import (
    CHECKED_VERSION,
    EXPERIMENT_KIND,
    latest_experiment,
    stored_runs,
    trial_curves,
)
from tests.orchestrator.tracking.stored import NewDatabase

PAGES = Path(mlflow.__file__).parent / "server" / "js" / "build" / "static" / "js"


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory, new_mlflow: NewDatabase) -> str:
    """Return the URI of a database with a sweep of one trial, and with a run of another sweep."""
    uri = new_mlflow(tmp_path_factory.mktemp("mlflow"))
    client = MlflowClient(uri)
    experiment = client.create_experiment("task")
    for created in ("1.25", "2.5"):
        sweep = client.create_run(experiment, tags={"sweep.id": "s", "sweep.created": created})
        tags = {"trial.key": "s-0", "mlflow.parentRunId": sweep.info.run_id}
        trial = client.create_run(experiment, tags=tags)
        if created == "1.25":
            for _ in range(2):  # a point that is sent twice
                client.log_batch(trial.info.run_id, [Metric("val/loss", 0.1 + 0.2, 7, 40)])
            client.set_terminated(trial.info.run_id, "FINISHED")
    return uri


def _file(uri: str) -> Path:
    return Path(uri.removeprefix("sqlite:///"))


def test_the_version_was_checked() -> None:
    """After an upgrade of MLflow: run this file, read its release notes, then change `CHECKED_VERSION`."""
    assert version("mlflow") == CHECKED_VERSION


def test_runs_and_points_are_in_the_tables(uri: str) -> None:
    """The tables hold what a client returns: one run of the trial, and a point that was sent twice once."""
    client = MlflowClient(uri)
    with stored_runs(_file(uri)) as runs:
        ((run_id, status),) = runs.of_sweep("s", "1.25")["s-0"]
        points = runs.points(run_id)
    assert status == client.get_run(run_id).info.status == "FINISHED"
    history = client.get_metric_history(run_id, "val/loss")
    assert points == [(point.key, point.step, point.value) for point in history]
    assert points == [("val/loss", 40, 0.1 + 0.2)]


def test_the_newest_experiment_is_in_the_table_of_runs(uri: str, tmp_path: Path) -> None:
    client = MlflowClient(uri)
    newest = client.create_experiment("newest")
    client.create_run(newest, start_time=2_000_000_000_000)
    assert latest_experiment(_file(uri)) == newest
    assert latest_experiment(tmp_path / "missing.db") is None
    (tmp_path / "empty.db").touch()
    assert latest_experiment(tmp_path / "empty.db") is None


def test_a_missing_database_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.Error), stored_runs(tmp_path / "mlflow.db"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_pages_know_the_parameters_of_the_address_and_the_tag() -> None:
    """Each name occurs in the scripts of MLflow's pages."""
    scripts = "".join(file.read_text(errors="replace") for file in PAGES.glob("*.js"))
    query = parse_qs(trial_curves("1", "s", minimize=True).partition("?")[2])
    assert query["orderByAsc"] == ["true"]
    ((tag, kind),) = EXPERIMENT_KIND.items()
    for name in (*query, query["compareRunsMode"][0], query["workflowType"][0], tag, kind):
        assert name in scripts, name
