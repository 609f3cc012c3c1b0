"""Which resources are available, whether a sweep can run on them, and what it will take. Imports no JAX."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import preflight
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import SweepRecord
from orchestrator.machines import hardware
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment
from orchestrator.storage.paths import Paths
from trainables.data.task import Source
from trainables.tasks import TASKS

LOCAL_NODE_WAIT, CLUSTER_NODE_WAIT = 10.0, 3600.0
"""Default seconds to wait while no node has room for a trial; a cluster may still grow."""

_COSTS = ("seconds/train", "seconds/evaluate")
_PROGRAM = ("task", "data", "model", "evaluate")
"""Sections of a sweep that, with the batch size, decide what a step costs."""


def cluster_address() -> str | None:
    """Return the address of the cluster to run on, or None for this machine."""
    return os.environ.get("RAY_ADDRESS") or None


def available_hardware(paths: Paths) -> Hardware:
    """Return the hardware that trials can run on: this machine's, or that of the cluster of RAY_ADDRESS.

    Args:
        paths: where sweeps write. A cluster of several hosts must share them.

    Raises:
        BadInput: if the cluster answers without a token, or refuses ours.
        NoCluster: if it does not answer.
    """
    address = cluster_address()
    if address is None:
        return hardware.detect()
    environment.prepare(0.0, paths.token)
    # Ray takes a second to import, and reads the environment above when it is imported.
    from orchestrator.schedule import resources

    available = resources.cluster_hardware(address)
    if available.hosts > 1:
        preflight.check_shared(paths)
    return available


def node_wait(seconds: float | None) -> float:
    """Return how many seconds to wait while no node has room for a trial; None means the default."""
    if seconds is not None:
        return seconds
    return LOCAL_NODE_WAIT if cluster_address() is None else CLUSTER_NODE_WAIT


# ------------------------------------------------------------------ can it run


def check(sweep: SweepConfig, available: Hardware, data: Path) -> Source:
    """Check, before anything starts or is written, that a sweep can run; return the source of its data.

    Args:
        sweep: to be run.
        available: hardware that its trials can use.
        data: folder of the data sets.

    Raises:
        BadInput: if one trial needs more resources than are available.
        BadData: if files of the task are missing or wrong.
    """
    _check_resources(sweep, available)
    return TASKS[sweep.task].check(sweep.task_options, data)


def _check_resources(sweep: SweepConfig, available: Hardware) -> None:
    trial = sweep.resources
    if trial.gpu > available.gpus:
        raise BadInput(
            f"{sweep.name}: resources.gpu",
            f"a trial's GPU share must be available; {available.phrase}",
            f"{trial.gpu:g}",
            "Use `--profile laptop`, or submit to a cluster that has GPUs.",
        )
    if trial.cpu > available.cpus:
        raise BadInput(
            f"{sweep.name}: resources.cpu",
            f"a trial's processors must be available; {available.phrase}",
            f"{trial.cpu:g}",
            f"Use at most {available.cpus}.",
        )
    if not available.holds(trial.cpu, trial.gpu):
        raise BadInput(
            f"{sweep.name}: resources",
            "one node must have both the processors and the GPU share of a trial",
            f"{trial.cpu:g} CPU and {trial.gpu:g} GPU",
            "Use fewer processors.",
        )


# ------------------------------------------------------------------ what will it take


@dataclass(frozen=True)
class Estimate:
    """The measured cost of one trial.

    Attributes:
        source: id of the sweep that it was measured in, on the machine of that sweep.
        seconds: of training and evaluation of a complete trial, without compilation.
        bytes: of its largest checkpoint: weights and optimiser state, without activations.
    """

    source: str
    seconds: float
    bytes: int


def estimate(sweep: SweepConfig, ledger: Ledger) -> Estimate | None:
    """Return the cost of a trial in the newest sweep of the same program, or None without one."""
    for record in reversed(ledger.sweeps()):
        if _same_program(record.document, sweep.document()) and (cost := _measured(record, sweep, ledger)):
            return cost
    return None


def _same_program(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    same_batch = before["training"]["batch_size"] == now["training"]["batch_size"]
    return same_batch and all(before.get(name) == now.get(name) for name in _PROGRAM)


def _measured(record: SweepRecord, sweep: SweepConfig, ledger: Ledger) -> Estimate | None:
    costs = [sum(row.metrics.get(name, 0.0) for name in _COSTS) for row in ledger.reports(record.id)]
    if not costs:
        return None
    # A report stands for an interval; the median leaves out the first one, which waits for the device.
    step_seconds = sorted(costs)[len(costs) // 2] / record.document["training"]["interval"]
    sizes = [row.bytes for row in ledger.checkpoints(record.id)]
    return Estimate(record.id, step_seconds * sweep.training.steps, max(sizes, default=0))


def phrases(sweep: SweepConfig, cost: Estimate | None, at_once: int) -> Iterator[str]:
    """Yield lines about the time and memory of a sweep, for people.

    Args:
        sweep: to be run.
        cost: of one trial, or None if it is unknown.
        at_once: number of trials that run at once.
    """
    if cost is None:
        yield "time and memory: not known; no sweep of this ledger has run the same program"
        return
    trials = sweep.budget.trials + sweep.confirm.seeds
    most = cost.seconds * trials / max(at_once, 1)
    yield (
        f"time: {cost.seconds:.0f} s a trial, at most {most / 60:.0f} min for {trials} of them,"
        f" {at_once} at once, compilation left out (measured in {cost.source})"
    )
    interval = cost.seconds * sweep.training.interval / sweep.training.steps
    if sweep.budget.hours is not None and 3600 * sweep.budget.hours < interval:
        yield f"warning: budget.hours ends before the first report, which takes {interval:.0f} s"
    yield f"memory: {cost.bytes / 1e6:.1f} MB a trial for weights and optimiser; activations not counted"
