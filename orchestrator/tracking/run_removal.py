"""Permanent deletion of runs in MLflow, with their artifacts.

    python -m orchestrator.tracking.run_removal < request.json        {"uri": ..., "runs": [...]}

It has a process of its own, because MLflow's command sets the tracking URI of its process and of those that
this process starts. The request comes on standard input, because a URI may hold a password.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection

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
    cli.gc.main(
        ["--backend-store-uri", uri, "--tracking-uri", uri, "--run-ids", ",".join(known)],
        standalone_mode=False,
    )


if __name__ == "__main__":
    request = json.load(sys.stdin)
    remove_runs(request["uri"], request["runs"])
