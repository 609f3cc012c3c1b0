"""Environment variables: those that Ray and Tune read when they are imported or started, and a worker's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from orchestrator import process_secrets
from orchestrator.accounts import check_closed
from orchestrator.machines.cluster_file import ensure_token
from orchestrator.machines.hardware import VISIBLE_DEVICES
from orchestrator.machines.head import LOOPBACK, runtime_folder, token_file
from orchestrator.machines.joining import OF_MACHINE
from orchestrator.training.process import DEPRECATED_MEMORY_FRACTION, worker_environment

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

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Ask Linux for pages of 2 MiB instead of 4 KiB; a user's own setting of the variable is left as it is.

XLA allocates the memory of a training step again for each step, and Linux hands it out page by page, which
takes a quarter to a third of a gradient's time (docs/benchmarks/trials.md). glibc reads it when a process
starts.
"""

GIVEN = frozenset(os.environ)
"""Names of the variables that this process was given; what is imported later may set others."""

METRICS_OFF = {
    "RAY_enable_metrics_collection": "0",
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
}
"""Undocumented. They turn off metrics for Prometheus, which Ray serves on every network without the token."""


KEYS_OF_STORE = frozenset(
    {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN"}
)
"""Variables with the keys of an S3 store, which the workers of a cluster too are given by their driver."""

KEEP_HANDLERS = {"RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1"}
"""Undocumented. By default the core of Ray replaces the handler of SIGTERM in a driver when it connects, and
removes it when it leaves: a signal would end the driver in its conclusion, with the sweep still RUNNING."""

_OF_ACCESS = ("MLFLOW_TRACKING_", "AWS_", "GOOGLE_APPLICATION_", "AZURE_STORAGE_")
"""Beginnings of the names of variables with which a worker reaches MLflow and the store of checkpoints."""

END_AT_ONCE = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
"""Undocumented. A head waits 30 s before it ends on SIGTERM, by default, for requests to Ray Serve."""


def prepare(token: Path) -> None:
    """Set this process's environment; call it before the first `import ray`, which reads some of it.

    Args:
        token: File with the token of the user's clusters, created if it is missing. It is used to join a
            cluster, unless the environment already names a token.

    Raises:
        BadInput: Another account can read the token.
    """
    os.environ.update(_settings() | KEEP_HANDLERS)
    if not os.environ.get("RAY_ADDRESS"):
        os.environ.update(LOOPBACK, RAY_AUTH_TOKEN_PATH=of_head()["RAY_AUTH_TOKEN_PATH"])
    elif not os.environ.keys() & {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}:
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(ensure_token(token).absolute())
    if (named := Path(os.environ.get("RAY_AUTH_TOKEN_PATH", ""))).is_file():
        check_closed("RAY_AUTH_TOKEN_PATH", named)


def of_head() -> dict[str, str]:
    """Return the settings of the Ray that drivers share on this machine; create its token if needed.

    Each start of a head writes a new token to the same file.
    """
    token = ensure_token(token_file(runtime_folder())).absolute()
    return {**_settings(), **LOOPBACK, **END_AT_ONCE, "RAY_AUTH_TOKEN_PATH": str(token)}


def of_workers(gpu_share: float) -> dict[str, str | None]:
    """Return the variables that a worker sets before it imports JAX; None removes one.

    The workers of a cluster have the environment of their node, the driver's keys of an S3 store, its access
    to MLflow if that takes a login, and what `SWEEP_VARIABLES` names. Those of this machine have that of the
    shared head, which is no sweep's, so they are also given what `process_secrets.of_trials` lets through of
    this driver's, and its access to MLflow and to stores. Only `ray_private.handed` may send it, because some
    of it is secret.

    Args:
        gpu_share: Share of a GPU that the worker may use; 0 for the CPU.
    """
    return {**_of_driver(os.environ), DEPRECATED_MEMORY_FRACTION: None, **worker_environment(gpu_share)}


def _of_driver(environment: Mapping[str, str]) -> dict[str, str | None]:
    keys = {name: environment[name] for name in KEYS_OF_STORE & environment.keys()}
    asked = process_secrets.asked_for(environment)
    names = {name: environment[name] for name in {process_secrets.VARIABLES} if asked}
    access = {name: value for name, value in environment.items() if name.startswith(_OF_ACCESS)}
    if environment.get("RAY_ADDRESS"):
        of_mlflow = {name: value for name, value in access.items() if name.startswith("MLFLOW_")}
        needs_login = any(process_secrets.is_secret(name, value) for name, value in of_mlflow.items())
        return {**keys, **asked, **names, **(of_mlflow if needs_login else {})}
    given = process_secrets.of_trials(environment)
    # Ray sets its own variables in a worker, and which devices it sees.
    own = {name: value for name, value in given.items() if not name.startswith("RAY_")}
    missing = {process_secrets.LEFT_OUT: ",".join(process_secrets.left_out(environment))}
    variables: dict[str, str | None] = {
        **dict.fromkeys(OF_MACHINE),
        **own,
        **access,
        **keys,
        **asked,
        **names,
        **missing,
    }
    return {name: value for name, value in variables.items() if name not in VISIBLE_DEVICES}


def _settings() -> dict[str, str]:
    own = {name: os.environ[name] for name in HUGE_PAGES if name in os.environ}
    return {**RAY_ENVIRONMENT, **METRICS_OFF, "RAY_AUTH_MODE": "token", **HUGE_PAGES, **own}
