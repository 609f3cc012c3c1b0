"""The load of the machine is recorded in the sweep's run, unless MLflow's own setting turns it off."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from filelock import FileLock
from mlflow.tracking import MlflowClient

from orchestrator.machines.head import runtime_folder
from orchestrator.tracking.deliver import MachineWatch, _lock_of
from orchestrator.tracking.mlflow_sink import Destination
from tests.another_account import needs_root, reached
from tests.orchestrator.tracking.stored import NewDatabase

CPU, MEMORY = "system/cpu_utilization_percentage", "system/system_memory_usage_megabytes"


@pytest.fixture
def client(tmp_path: Path, new_mlflow: NewDatabase) -> MlflowClient:
    return MlflowClient(new_mlflow(tmp_path))


def points(client: MlflowClient, run_id: str, name: str = CPU) -> list[int]:
    """Return the steps of a metric, as they were written."""
    return [point.step for point in client.get_metric_history(run_id, name)]


def watch(client: MlflowClient, run_id: str, seconds: float) -> None:
    """Record until the run has one more point, or for the given time."""
    before = len(points(client, run_id))
    with MachineWatch(client.tracking_uri) as machine:
        machine.begin(None)
        machine.begin(run_id)
        machine.begin(run_id)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and len(points(client, run_id)) == before:
            time.sleep(0.1)


@pytest.mark.slow
def test_the_next_process_continues_the_series(client: MlflowClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING", "1")
    run_id = client.create_run("0").info.run_id
    watch(client, run_id, 30.0)
    first = points(client, run_id)
    watch(client, run_id, 30.0)
    steps = points(client, run_id)
    assert len(steps) > len(first) > 0
    assert sorted(steps) == list(range(len(steps)))
    assert points(client, run_id, MEMORY) == steps


def test_mlflows_own_setting_turns_it_off(client: MlflowClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.05")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING", "1")
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "false")
    run_id = client.create_run("0").info.run_id
    watch(client, run_id, 0.5)
    assert not client.get_run(run_id).data.metrics


@needs_root
def test_no_other_account_can_hold_the_lock_of_a_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the runtime folder of the user, not in the folder of temporary files that all users share."""
    tmp_path.chmod(0o755)
    monkeypatch.setenv("SWEEP_RUNTIME", str(tmp_path))
    lock = _lock_of(Destination("sqlite:///x.db", None, "sweeps", "copying-1", ""))
    assert lock.parent == runtime_folder()
    with FileLock(lock, mode=0o600):
        assert reached(lock, lock.parent) == []
