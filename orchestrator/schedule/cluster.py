"""Start a Ray on this machine or join a cluster, and run single tasks on it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import ray
from ray.exceptions import RayTaskError

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import NoCluster
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule.resources import no_answer
from orchestrator.training import evaluation
from orchestrator.training.engine_cache import best_slots
from orchestrator.training.process import worker_environment


@contextmanager
def connected(hardware: Hardware, gpu_share: float) -> Iterator[None]:
    """Join the cluster of RAY_ADDRESS, or start a Ray on this machine; leave it or shut it down on exit.

    `orchestrator.schedule.environment.prepare` must have run before this module was imported.

    Args:
        hardware: what a Ray of this machine may use.
        gpu_share: share of a GPU that a trial uses.

    Raises:
        NoCluster: if Ray does not start, or the cluster cannot be joined.
    """
    address = os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {"logging_level": logging.CRITICAL, "log_to_driver": False}
    if address:
        options |= {"address": address, "runtime_env": {"env_vars": worker_environment(gpu_share)}}
    else:
        # "local": without an address Ray joins any head that was started on this machine before.
        local = {"address": "local", "num_cpus": hardware.cpus, "num_gpus": hardware.gpus}
        options |= {**local, "include_dashboard": False}
    _init(options)
    # The ledger has every error of a trial, with its cause; Tune would only list the attempts once more.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        ray.shutdown()


def _init(options: dict[str, Any]) -> None:
    """Start or join Ray; try twice, because Ray's own timeout is too short for a busy machine."""
    for last in (False, True):
        try:
            ray.init(**options)
        except Exception as error:
            ray.shutdown()
            if last:
                raise _not_connected(os.environ.get("RAY_ADDRESS"), error) from error
        else:
            return


def _not_connected(address: str | None, error: Exception) -> NoCluster:
    got = next(iter(str(error).splitlines()), type(error).__name__)
    if address:
        return no_answer(address, got)
    remedy = "Run the same command again when the machine is less busy."
    return NoCluster("Ray", "must start on this machine", got, remedy)


def kill_local_ray() -> None:
    """Kill the Ray that this process has started, without waiting; a joined cluster is left alone."""
    installed = str(Path(ray.__file__).parent)
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any(word.startswith(installed) for word in child.cmdline()):
                child.kill()


def with_slots(sweep: SweepConfig, data: str, compilations: str) -> SweepConfig:
    """Return a sweep whose trials have the share of a GPU that its number of slots gives.

    Args:
        sweep: with `slots: auto`, a GPU of the cluster measures which number is fastest.
        data: folder of the data sets.
        compilations: folder of JAX's persistent compilation cache.
    """
    slots = sweep.resources.slots
    if slots is None:
        return sweep
    if slots != "auto":
        return replace(sweep, resources=sweep.resources.shared_by(slots))
    settings = sweep.settings(sweep.largest(), seed=0)
    best: int = ray.get(ray.remote(num_gpus=1)(best_slots).remote(settings, data, compilations))
    return replace(sweep, resources=sweep.resources.shared_by(best))


class EvaluationRequest(NamedTuple):
    """The arguments of `orchestrator.training.evaluation.evaluate`."""

    folder: str
    digest: str
    data: str
    split: str
    compilations: str
    stored: str | None = None


def evaluate(request: EvaluationRequest, cpu: float, gpu: float) -> dict[str, Any]:
    """Evaluate a checkpoint in a Ray task; return its step and metrics.

    Args:
        request: names the checkpoint and the split.
        cpu: processors of the task.
        gpu: share of a GPU of the task.

    Raises:
        Exception: what the evaluation raised, without Ray's wrapping, which hides the number of an OSError.
    """
    task = ray.remote(num_cpus=cpu, num_gpus=gpu)(evaluation.evaluate)
    try:
        answer: dict[str, Any] = ray.get(task.remote(*request))
    except RayTaskError as error:
        raise error.cause from error
    return answer
