"""Addresses of MLflow's own pages that show a sweep best, relative to wherever the server is reached."""

from __future__ import annotations

from urllib.parse import quote, urlencode


def trial_curves(experiment_id: str, sweep_id: str, *, minimize: bool) -> str:
    """Return the address of the charts of a sweep's trials, the best trial first.

    Without the filter MLflow folds the trials under their sweep, and a chart shows the folded run alone.
    """
    query = {
        "workflowType": "machine_learning",
        "compareRunsMode": "CHART",
        "searchFilter": f"tags.`sweep.id` = '{sweep_id}' and tags.`trial.role` = 'search'",
        "orderByKey": "metrics.`objective`",
        "orderByAsc": str(minimize).lower(),
    }
    return f"#/experiments/{experiment_id}/runs?{urlencode(query, quote_via=quote)}"
