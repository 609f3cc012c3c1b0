"""Environment variables that Ray and Tune read when they are imported or started."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.machines.cluster_file import ensure_token
from orchestrator.training.process import worker_environment

RAY_ENVIRONMENT = {
    # Reports go to the ledger; Tune's CSV, JSON and TensorBoard files would only repeat them.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Tune's state file is never read, so it need not be written while the sweep runs.
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    # The driver handles signals: it saves every trial first.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # A failed attempt reports no metric.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_THRESHOLD_S": "5",
    "RAY_AIR_NEW_OUTPUT": "0",
    # A worker without a GPU share must not see every GPU of its node.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    # For each lost node Ray prints the end of a raylet's log, whatever `log_to_driver` says. Skip every line.
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}

METRICS_OFF = {
    "RAY_enable_metrics_collection": "0",
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
}
"""Undocumented. They turn off metrics for Prometheus, which Ray serves on every network without the token."""


def prepare(gpu_share: float, token: Path) -> None:
    """Set this process's environment; call it before the first `import ray`, which reads some of it.

    Args:
        gpu_share: share of a GPU that a trial uses.
        token: file with the token, created if it is missing. To join a cluster, the token that the
            environment already names is used instead.
    """
    os.environ.update({**RAY_ENVIRONMENT, **METRICS_OFF, "RAY_AUTH_MODE": "token"})
    joins = "RAY_ADDRESS" in os.environ
    if not (joins and os.environ.keys() & {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}):
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(ensure_token(token).absolute())
    if not joins:
        # The processes of a local Ray inherit it; a runtime environment would cost a second at the start.
        os.environ.update(worker_environment(gpu_share))
