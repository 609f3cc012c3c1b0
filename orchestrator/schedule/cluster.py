"""Start a Ray of this machine's own, or join the cluster that the environment names."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import ray
from ray._private import worker as ray_worker

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import NoCluster
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule.environment import worker_environment
from trainables.trial import TrialSettings

_LOGGER = logging.getLogger(__name__)


@contextmanager
def connected(hardware: Hardware, gpu_share: float) -> Iterator[None]:
    """Hold a Ray for the length of a sweep: the one of `RAY_ADDRESS`, or one of our own on this machine.

    `orchestrator.schedule.environment.prepare` must have run before this module was imported.
    """
    address = os.environ.get("RAY_ADDRESS")
    wanted: dict[str, Any] = {"logging_level": logging.CRITICAL, "log_to_driver": False}
    if address:
        wanted |= {"address": address, "runtime_env": {"env_vars": worker_environment(gpu_share)}}
    else:
        # "local": without an address Ray joins whatever head was started on this machine before.
        ours = {"address": "local", "num_cpus": hardware.cpus, "num_gpus": hardware.gpus}
        wanted |= {**ours, "include_dashboard": False}
    _begin(wanted)
    # The ledger has every error of a trial, with its cause; Tune would only list the attempts once more.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        ray.shutdown()


def _note(data: Mapping[str, Any], ignore_prefix: bool) -> None:
    _LOGGER.debug("%s", "\n".join(data["lines"]))


# For each node that is lost Ray prints the last twenty lines of a raylet's log, and has no switch for it.
ray_worker.print_to_stdstream = _note


def _begin(wanted: Mapping[str, Any]) -> None:
    """Start or join Ray; once more where that fails, for its own patience with a busy machine is fixed."""
    for last in (False, True):
        try:
            ray.init(**wanted)
        except Exception as error:
            ray.shutdown()
            if last:
                raise _unreachable(os.environ.get("RAY_ADDRESS"), error) from error
        else:
            return


def _unreachable(address: str | None, error: Exception) -> NoCluster:
    got = next(iter(str(error).splitlines()), type(error).__name__)
    if address:
        remedy = "Start it, or unset RAY_ADDRESS."
        return NoCluster(f"RAY_ADDRESS={address}", "must be a Ray cluster that answers", got, remedy)
    remedy = "Run the same command again when the machine is less busy."
    return NoCluster("Ray", "must start on this machine", got, remedy)


def shared(sweep: SweepConfig, data: str, compilations: str) -> SweepConfig:
    """Return a sweep with the share of a GPU that each of its trials takes, measured if it is `auto`."""
    slots = sweep.resources.slots
    if slots is None:
        return sweep
    if slots != "auto":
        return replace(sweep, resources=sweep.resources.shared_by(slots))
    settings = sweep.settings(sweep.largest(), seed=0)
    best: int = ray.get(ray.remote(num_gpus=1)(_best_slots).remote(settings, data, compilations))
    return replace(sweep, resources=sweep.resources.shared_by(best))


def _best_slots(settings: TrialSettings, data: str, compilations: str) -> int:
    from orchestrator.training import engine_cache

    return engine_cache.best_slots(settings, data, compilations)


class Evaluation(NamedTuple):
    """What `orchestrator.training.evaluation.evaluate` is asked."""

    folder: str
    data: str
    split: str
    compilations: str
    store: str | None = None


def evaluate(request: Evaluation, cpu: float, gpu: float) -> dict[str, Any]:
    """Evaluate a checkpoint in a Ray task with the resources of a trial."""
    task = ray.remote(num_cpus=cpu, num_gpus=gpu)(_evaluate)
    answer: dict[str, Any] = ray.get(task.remote(request))
    return answer


def _evaluate(request: Evaluation) -> dict[str, Any]:
    from orchestrator.training import evaluation

    return evaluation.evaluate(*request)


def abandon() -> None:
    """End the Ray processes that this process started, without waiting for anybody."""
    node = ray._private.worker._global_node
    if node is not None and node.is_head():
        node.kill_all_processes(check_alive=False, allow_graceful=False)
