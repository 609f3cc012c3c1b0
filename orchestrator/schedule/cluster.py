"""Start a Ray of this machine's own, or join the cluster that the environment names."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from orchestrator.hardware import Hardware

_TUNE_ENVIRONMENT = {
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
    "RAY_DEDUP_LOGS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}


def worker_environment(gpu_share: float) -> dict[str, str]:
    """Return the environment of every process that trains or evaluates.

    One XLA thread a process on a CPU: a trial a core is faster than a core shared by trials, and it makes
    the numbers independent of what else runs.
    """
    if gpu_share <= 0:
        return {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
            "OMP_NUM_THREADS": "1",
        }
    share = f"{min(gpu_share, 1.0) * 0.9:.3f}"
    # Both names: the older one is deprecated, and which one a JAX honours depends on its version.
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": share, "XLA_CLIENT_MEM_FRACTION": share}


@contextmanager
def connected(hardware: Hardware, gpu_share: float, token_file: Path) -> Iterator[None]:
    """Hold a Ray for the length of a sweep: the one of `RAY_ADDRESS`, or one of our own on this machine."""
    os.environ.update(_TUNE_ENVIRONMENT)
    os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(_token(token_file))})
    address = os.environ.get("RAY_ADDRESS")
    if address:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False,
                 runtime_env={"env_vars": worker_environment(gpu_share)})
    else:
        # A Ray of our own inherits the environment: a runtime environment would cost a second at the start.
        os.environ.update(worker_environment(gpu_share))
        ray.init(
            num_cpus=hardware.cpus,
            num_gpus=hardware.gpus,
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
            configure_logging=True,
        )
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def _token(file: Path) -> Path:
    """Return the file with the cluster's token, made for the owner's eyes only if it is missing."""
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(secrets.token_hex(32))
    return file


def evaluate(folder: str, data: str, split: str, compilations: str, cpu: float, gpu: float) -> dict[str, Any]:
    """Evaluate a checkpoint in a Ray task with the resources of a trial; see `orchestrator.evaluation`."""
    task = ray.remote(num_cpus=cpu, num_gpus=gpu)(_evaluate)
    answer: dict[str, Any] = ray.get(task.remote(folder, data, split, compilations))
    return answer


def _evaluate(folder: str, data: str, split: str, compilations: str) -> dict[str, Any]:
    from orchestrator import evaluation

    return evaluation.evaluate(folder, data, split, compilations)


def abandon() -> None:
    """End the Ray processes that this process started, without waiting for anybody."""
    node = ray._private.worker._global_node
    if node is not None and node.is_head():
        node.kill_all_processes(check_alive=False, allow_graceful=False)
