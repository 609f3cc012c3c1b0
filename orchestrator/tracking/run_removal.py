"""Permanent deletion of runs in MLflow, with their artifacts."""

from __future__ import annotations

import io
from collections.abc import Collection
from contextlib import redirect_stdout

from mlflow import cli
from mlflow.exceptions import MlflowException

from orchestrator.tracking.address import is_server
from orchestrator.tracking.database import connect


def remove_runs(uri: str, run_ids: Collection[str]) -> None:
    """Delete runs of MLflow; those that do not exist any more are left out.

    A database forgets them at once, with their artifacts. A server marks them as deleted, as its API permits
    no more, and its operator removes them with `mlflow gc`.

    Args:
        uri: Tracking URI.
        run_ids: IDs of the runs.
    """
    client, known = connect(uri), []
    for run_id in sorted(run_ids):
        try:
            run = client.get_run(run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                continue
            raise
        if run.info.lifecycle_stage == "active":
            client.delete_run(run_id)
        known.append(run_id)
    if not known or is_server(uri):
        return
    with redirect_stdout(io.StringIO()):  # it prints one line for each run
        cli.gc.main(
            ["--backend-store-uri", uri, "--tracking-uri", uri, "--run-ids", ",".join(known)],
            standalone_mode=False,
        )
