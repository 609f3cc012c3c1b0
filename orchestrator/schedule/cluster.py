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
from orchestrator.schedule.environment import TUNE_ENVIRONMENT, worker_environment

@contextmanager
def connected(hardware: Hardware, gpu_share: float, token_file: Path) -> Iterator[None]:
    """Hold a Ray for the length of a sweep: the one of `RAY_ADDRESS`, or one of our own on this machine."""
    os.environ.update(TUNE_ENVIRONMENT)
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
