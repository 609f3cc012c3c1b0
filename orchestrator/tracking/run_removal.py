"""Permanent deletion of runs in MLflow, with their artifacts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection

from mlflow import cli
from mlflow.exceptions import MlflowException

from orchestrator.errors import NoDatabase
from orchestrator.process_secrets import redacted
from orchestrator.tracking.address import is_server
from orchestrator.tracking.database import connect


def remove_runs(uri: str, run_ids: Collection[str]) -> None:
    """Delete runs of MLflow; those that do not exist any more are left out.

    A database forgets them at once, with their artifacts. A server marks them as deleted, as its API permits
    no more, and its operator removes them with `mlflow gc`.

    Args:
        uri: Tracking URI.
        run_ids: IDs of the runs.

    Raises:
        NoDatabase: MLflow could not delete the runs.
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
    # MLflow keeps the first database that its `gc` opens, so each gets a process. The address,
    # which may hold a password, is not an argument.
    command = [sys.executable, "-m", "orchestrator.tracking.run_removal"]
    given = json.dumps({"uri": uri, "runs": known})
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        got = next(reversed(done.stderr.strip().splitlines()), "no message")
        raise NoDatabase(
            "mlflow gc", "must delete the runs of the sweep", redacted(got), "Run `gc --delete` again."
        )


def main() -> None:
    """Delete the runs that standard input names with their database, for good."""
    given = json.load(sys.stdin)
    uri, runs = given["uri"], ",".join(given["runs"])
    cli.gc.main(["--backend-store-uri", uri, "--tracking-uri", uri, "--run-ids", runs])


if __name__ == "__main__":
    main()
