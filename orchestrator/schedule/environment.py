"""Environment variables that Ray, Tune, XLA and JAX read when a process starts."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.machines.hardware import host_devices
from orchestrator.machines.token import ensure_token

TUNE_ENVIRONMENT = {
    # Our reports go to the ledger; Tune's own CSV, JSON and TensorBoard files would only repeat them.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Tune's state file is never read, so it need not be written while the sweep runs.
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    # Signals are ours: they save first.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # A failed attempt reports no metric.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_THRESHOLD_S": "5",
    "RAY_AIR_NEW_OUTPUT": "0",
    # A worker without a GPU share must not see every GPU of its node.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    # Ray's figures for Prometheus would be told to whoever asks, on every network, without the token.
    "RAY_enable_metrics_collection": "0",
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}


def worker_environment(gpu_share: float) -> dict[str, str]:
    """Return the environment of every process that trains or evaluates.

    Asks XLA for one thread a process on a CPU, as a trial a core is faster than a core shared by trials. JAX
    0.10 heeds it in part: operations that do not depend on each other may still run side by side.
    """
    if gpu_share <= 0 or host_devices():
        return {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
            "OMP_NUM_THREADS": "1",
        }
    share = f"{min(gpu_share, 1.0) * 0.9:.3f}"
    # Both names: the older one is deprecated, and which one a JAX honours depends on its version.
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": share, "XLA_CLIENT_MEM_FRACTION": share}


def prepare(gpu_share: float, token: Path) -> None:
    """Set this process's environment; must come before the first `import ray`, which reads some of it.

    Args:
        gpu_share: share of a GPU that a trial asks for.
        token: file with the token, made for the owner's eyes only if it is missing; a cluster's own, named by
            the environment, goes before it.
    """
    os.environ.update({**TUNE_ENVIRONMENT, "RAY_AUTH_MODE": "token"})
    joins = "RAY_ADDRESS" in os.environ
    if not (joins and os.environ.keys() & {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}):
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(ensure_token(token).absolute())
    if not joins:
        # A Ray of our own inherits the environment: a runtime environment would cost a second at the start.
        os.environ.update(worker_environment(gpu_share))
