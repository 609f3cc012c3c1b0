"""Known results from an experiment of MLflow."""

from __future__ import annotations

from typing import Any

from orchestrator.errors import BadInput

MOST_RUNS = 10_000
"""Runs of an experiment that are read."""

_PAGE = 1_000


def rows_of_experiment(tracking: str, name: str) -> list[dict[str, Any]]:
    """Return the finished runs of an experiment: parameters, as text, and the last value of each metric.

    Args:
        tracking: Address of MLflow.
        name: Name of the experiment.

    Raises:
        BadInput: The experiment cannot be read.
    """
    from mlflow.entities import RunStatus  # takes seconds, and few files name an experiment
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    remedy = "Write mlflow://http://HOST:5000#EXPERIMENT, for example."
    rows: list[dict[str, Any]] = []
    try:
        client = MlflowClient(tracking_uri=tracking)
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            raise BadInput("known", "must name an experiment of MLflow", name, remedy)
        token: str | None = None
        wanted = f"attributes.status = '{RunStatus.to_string(RunStatus.FINISHED)}'"
        while len(rows) < MOST_RUNS:
            page = client.search_runs([experiment.experiment_id], wanted, max_results=_PAGE, page_token=token)
            rows += [{**run.data.params, **run.data.metrics} for run in page]
            if not (token := page.token):
                break
    except (MlflowException, OSError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput("known", "must name an MLflow that can be read", cause, remedy) from None
    return rows
