"""Permanent deletion of runs in MLflow, with their artifacts and the models that were registered from them.

    python -m orchestrator.tracking.run_removal < request.json        {"uri": ..., "runs": [...]}

It has a process of its own, because artifacts that a server stores are found by the tracking URI of the
process. The request comes on standard input, because a URI may hold a password.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import mlflow
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.tracking import MlflowClient
from mlflow.tracking._tracking_service.utils import _get_store
from mlflow.utils.file_utils import local_file_uri_to_path

from orchestrator.tracking.address import is_server
from orchestrator.tracking.database import connect


def remove_runs(uri: str, run_ids: Collection[str]) -> None:
    """Delete runs of MLflow; those that do not exist any more are left out.

    A database forgets them at once, with their artifacts and models. A server marks both as deleted, as its
    API permits no more, and its operator removes them with `mlflow gc`. Both also delete the versions of
    registered models that used these files, and registered models that then have no version.

    Args:
        uri: Tracking URI.
        run_ids: IDs of the runs.
    """
    mlflow.set_tracking_uri(uri)
    client = connect(uri)
    for run_id in sorted(run_ids):
        for version in client.search_model_versions(f"run_id = '{run_id}'"):
            _remove_version(client, version)
        with _unless_missing():
            run = client.get_run(run_id)
            for output in run.outputs.model_outputs if run.outputs else ():
                with _unless_missing():
                    _remove_model(client, uri, output.model_id)
            if run.info.lifecycle_stage == "active":
                client.delete_run(run_id)
            if not is_server(uri):
                # Not by `mlflow gc`, which also removes every experiment and model that anybody has deleted.
                _delete_artifacts(run.info.artifact_uri, 1)
                _get_store(uri)._hard_delete_run(run_id)


def _remove_version(client: MlflowClient, version: ModelVersion) -> None:
    with _unless_missing():
        client.delete_model_version(version.name, version.version)
    if not client.search_model_versions(f"name = '{version.name}'", max_results=1):
        with _unless_missing():
            client.delete_registered_model(version.name)


def _remove_model(client: MlflowClient, uri: str, model_id: str) -> None:
    location = client.get_logged_model(model_id).artifact_location
    client.delete_logged_model(model_id)
    if not is_server(uri):
        _delete_artifacts(location, 2)
        _get_store(uri)._hard_delete_logged_model(model_id)


def _delete_artifacts(location: str, parents: int) -> None:
    """Delete artifacts and, on this machine, the folders that become empty."""
    get_artifact_repository(location).delete_artifacts()
    with suppress(OSError, MlflowException):  # the folder may be elsewhere, or hold something else
        for folder in list(Path(local_file_uri_to_path(location)).parents)[:parents]:
            folder.rmdir()


@contextmanager
def _unless_missing() -> Iterator[None]:
    """End a `with` block without an error if MLflow does not know what it names."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise


if __name__ == "__main__":
    request = json.load(sys.stdin)
    remove_runs(request["uri"], request["runs"])
