"""Environment variables of Ray and Tune, read at their import or start, and of workers."""

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
"""Huge pages: 2 MiB instead of 4 KiB, unless the user has set the variable. glibc reads it at process start.

XLA allocates the memory of every training step again, and handing it out page by page takes a quarter to a
third of a gradient's time (docs/benchmarks/trials.md).
"""

GIVEN = frozenset(os.environ)
"""Names of the variables with which this process was started; imports may set others."""

METRICS_OFF = {
    "RAY_enable_metrics_collection": "0",
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
}
"""Undocumented settings that turn off Prometheus metrics, which Ray serves without the token."""


KEYS_OF_STORE = frozenset(
    {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN"}
)
"""Variables with the keys of an S3 store. A driver also sends them to workers of a cluster."""

KEEP_HANDLERS = {"RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1"}
"""Undocumented setting that keeps the driver's SIGTERM handler. Ray replaces it on connecting and removes it
on leaving, so a signal during the conclusion would end the driver with the sweep still RUNNING."""

_OF_ACCESS = ("MLFLOW_TRACKING_", "AWS_", "GOOGLE_APPLICATION_", "AZURE_STORAGE_")
"""Prefixes of the variables with which a worker reaches MLflow and the checkpoint store."""

END_AT_ONCE = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
"""Undocumented setting: on SIGTERM, a head does not wait 30 s for requests to Ray Serve."""


NO_SPARE_WORKERS = {"RAY_prestart_worker_first_driver": "0"}
"""Undocumented setting: a head starts no workers before one is needed. Trials use none of those, and each
takes a second of CPU (docs/benchmarks/latency.md)."""


def prepare(token: Path) -> None:
    """Set this process's environment; call it before the first `import ray`, which reads some of it.

    Args:
        token: File with the token of the user's clusters, created if it is missing. It is used to join a
            cluster unless the environment already names a token.

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
    return {**_settings(), **LOOPBACK, **END_AT_ONCE, **NO_SPARE_WORKERS, "RAY_AUTH_TOKEN_PATH": str(token)}


def of_workers(gpu_share: float) -> dict[str, str | None]:
    """Return the variables that a worker sets before it imports JAX; None removes one.

    Workers of a cluster have the environment of their node, and get the driver's keys of an S3 store, its
    access to MLflow if that needs a login, and the variables that `SWEEP_VARIABLES` names. Workers of this
    machine have the environment of the shared head, so they also get the driver's variables that
    `process_secrets.of_trials` allows, and its access to MLflow and to stores. Some of it is secret, so only
    `ray_private.handed` may send it.

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
