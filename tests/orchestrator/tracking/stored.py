"""The content of an MLflow store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mlflow.tracking import MlflowClient

from orchestrator.ledger.sweeps.records import Event
from orchestrator.tracking.mlflow_sink import Destination, MlflowSink, Refused
from tests import sweeps

NewDatabase = Callable[[Path], str]
"""Puts an empty MLflow database into a folder and returns its URI; see `new_mlflow`."""

EVERYTHING = {sweeps.SWEEP_ID: 0, "0000": 67, "0001": 67, "0002": 69}
"""Number of points of each run once the first three trials of `sweeps.fill` are delivered."""


def without_value(name: str) -> str:
    """Return the name of a run without its value, and the number of a trial with four digits."""
    first = name.partition(" · ")[0]
    return first.zfill(4) if first.isdigit() else first


def points_by_run(uri: str) -> dict[str, int]:
    """Return the number of points of each run by its name; each name must occur once."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("retrieval")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    points = {
        without_value(run.info.run_name): sum(
            len(client.get_metric_history(run.info.run_id, name)) for name in run.data.metrics
        )
        for run in runs
    }
    assert len(points) == len(runs)
    return points


def deliver(
    destination: Destination, events: Sequence[Event], sink: MlflowSink | None = None
) -> list[Refused]:
    """Apply events as the shipper does; the ids of the runs are recorded in the destination.

    Args:
        destination: of the events; its `runs` stand for the ledger's.
        events: to apply.
        sink: to use; a new one by default, as after a restart.
    """
    sink = sink or MlflowSink(destination)
    assert isinstance(destination.runs, dict)
    destination.runs.update({**sink.recreated, **sink.create(events)})
    return sink.apply(events)
