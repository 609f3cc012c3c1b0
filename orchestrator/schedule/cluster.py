"""Start a Ray of this machine's own, or join the cluster that the environment names."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from orchestrator.hardware import Hardware
from orchestrator.schedule.environment import worker_environment

@contextmanager
def connected(hardware: Hardware, gpu_share: float) -> Iterator[None]:
    """Hold a Ray for the length of a sweep: the one of `RAY_ADDRESS`, or one of our own on this machine.

    `orchestrator.schedule.environment.prepare` must have run before this module was imported.
    """
    address = os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address:
        ray.init(address=address, runtime_env={"env_vars": worker_environment(gpu_share)}, **quiet)
    else:
        ray.init(num_cpus=hardware.cpus, num_gpus=hardware.gpus, include_dashboard=False, **quiet)
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


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
