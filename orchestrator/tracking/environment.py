"""The environment of our processes that import MLflow: no telemetry, no jobs, no pickles, short waits."""

from __future__ import annotations

import os
from pathlib import Path

_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "GIT_PYTHON_REFRESH": "quiet",
}

_AMBIENT = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_CONTEXT")
"""Variables of somebody else's run, which would redirect ours."""


def environment() -> dict[str, str]:
    """Return this process's environment with the settings above, able to import this package."""
    root = str(Path(__file__).resolve().parents[2])
    inherited = {name: value for name, value in os.environ.items() if name not in _AMBIENT}
    path = os.pathsep.join(part for part in (root, inherited.get("PYTHONPATH", "")) if part)
    return {**inherited, **_SETTINGS, "PYTHONPATH": path}
