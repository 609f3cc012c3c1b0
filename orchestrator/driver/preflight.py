"""Preflight checks and estimates of a sweep: resources, paths, checkpoints, cost.

This module does not import JAX, and imports Ray only to query a cluster.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator import storage
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver.user_code import account_for, check_code, opened_as
from orchestrator.errors import BadInput, Refusal, check_all
from orchestrator.ledger.connect import NETWORK_FILE_SYSTEMS, file_system, is_file, parse
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import UNFINISHED_TRIAL, SweepRecord
from orchestrator.machines import hardware
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment
from orchestrator.storage.paths import Paths
from orchestrator.tracking import address
from trainables.data.task import Signature, Source
from trainables.layers import LAYERS
from trainables.tasks import TASKS

CLUSTER_WAIT = 3600.0
"""Default seconds to wait while no trial can start on a cluster."""

_COSTS = ("seconds/train", "seconds/evaluate")
_PROGRAM = ("trainable", "task", "data", "model", "evaluate")
"""Sections of a sweep that determine the cost of a step, together with the batch size."""


# ------------------------------------------------------------------ resources


def cluster_address() -> str | None:
    """Return the address of the cluster to run on, or None for this machine."""
    return os.environ.get("RAY_ADDRESS") or None


def available_hardware(paths: Paths) -> Hardware:
    """Return the hardware that trials can use: this machine's, or that of the cluster of RAY_ADDRESS.

    Args:
        paths: Paths where sweeps write. A cluster of several hosts must share them.

    Raises:
        BadInput: The cluster answers without a token, or refuses the token of this process.
        NoCluster: It does not answer.
    """
    address = cluster_address()
    if address is None:
        return hardware.detect()
    environment.prepare(paths.token)
    # Ray takes a second to import, and reads the environment at its import.
    from orchestrator.schedule import resources

    available = resources.cluster_hardware(address)
    if available.hosts > 1:
        check_shared_paths(paths)
    return available


@dataclass(frozen=True)
class Patience:
    """Time limits of a driver while no trial can start.

    Attributes:
        node: Seconds to wait while no node can hold a trial; a cluster may still grow.
        busy: Seconds to wait while the nodes that can hold a trial are in use, as by another sweep.
    """

    node: float
    busy: float

    @classmethod
    def of(cls, seconds: float | None) -> Patience:
        """Return the patience that a user sets; None means the default."""
        if seconds is None:
            return ON_THIS_MACHINE if cluster_address() is None else cls(CLUSTER_WAIT, CLUSTER_WAIT)
        return cls(seconds, seconds)


ON_THIS_MACHINE = Patience(node=10.0, busy=math.inf)


def check_sweep(sweep: SweepConfig, available: Hardware, data: Path, owner: str) -> Source | None:
    """Check that a sweep can run before anything is started or written; return the source of its data.

    The source is None for a trainable, which loads its own data.

    Args:
        sweep: Sweep to run.
        available: Hardware that its trials can use.
        data: Folder of the data sets.
        owner: Owner of the sweep.

    Raises:
        BadInput: A trial needs more resources than are available, or the code of a trainable is missing or
            may not run as the owner.
        BadData: Files of the task are missing or wrong.
    """
    check_all([partial(_check_resources, sweep, available), partial(_check_code, sweep, owner)])
    return None if sweep.trainable is not None else TASKS[sweep.task].check(sweep.task_options, data)


def _check_code(sweep: SweepConfig, owner: str) -> None:
    if sweep.trainable is not None:
        with opened_as(account_for(sweep.trainable, owner)):
            check_code(sweep.trainable)


def _check_resources(sweep: SweepConfig, available: Hardware) -> None:
    trial = sweep.resources
    if trial.gpu > available.gpus:
        raise BadInput(
            f"{sweep.name}: resources.gpu",
            f"must be available, but {available.phrase}",
            f"{trial.gpu:g}",
            f"Use at most {available.gpus:g}, perhaps by a profile of the file, or a cluster that has more.",
        )
    if trial.cpu > available.cpus:
        raise BadInput(
            f"{sweep.name}: resources.cpu",
            f"must be available, but {available.phrase}",
            f"{trial.cpu:g}",
            f"Use at most {available.cpus}.",
        )
    if not available.holds(trial.cpu, trial.gpu):
        raise BadInput(
            f"{sweep.name}: resources",
            "one node must have both the processors and the GPUs of a trial",
            f"{trial.cpu:g} CPU and {trial.gpu:g} GPU",
            "Use fewer processors.",
        )
    if not available.holds(trial.cpu, trial.gpu, trial.node_count):
        raise BadInput(
            f"{sweep.name}: resources.nodes",
            f"needs as many nodes with {trial.cpu:g} CPU and {trial.gpu:g} GPU each",
            f"{trial.nodes}",
            "Use fewer nodes, or submit to a cluster that has as many.",
        )


def check_widths(sweep: SweepConfig, signature: Signature) -> None:
    """Check that every network without an encoder has the width of the task's arrays.

    Raises:
        BadInput: A network has another width.
    """
    own = {f"{layer}.d_model" for layer in LAYERS}
    try:
        for network in sweep.networks(frozenset({"layer", "encoder", "d_model", *own})):
            network.check_width(signature)
    except Refusal as error:
        raise BadInput(f"{sweep.name}: {error.where}", error.must, error.got, error.remedy) from None


def check_warmup(sweep: SweepConfig, examples: int) -> None:
    """Check that a warm-up in epochs ends before the training, in the trial with the longest one.

    Args:
        sweep: Sweep to run.
        examples: Number of examples of the training split.

    Raises:
        BadInput: The rates would never reach their peak.
    """
    training = sweep.network_settings(sweep.largest(lowest=("batch_size",)), seed=0).training
    steps, batch = training.steps, training.batch_size
    epoch = max(examples // batch, 1)
    if training.warmup_epochs is not None and training.warmup_epochs * epoch >= steps:
        searched = "search" if "warmup_epochs" in sweep.search else "training"
        raise BadInput(
            f"{sweep.name}: {searched}.warmup_epochs",
            f"must be below {steps / epoch:.4g}, because an epoch has {epoch} steps ({examples} examples in"
            f" batches of {batch}) and a trial {steps} steps",
            f"{training.warmup_epochs:g}",
            "Use fewer epochs, more steps, or `warmup`, a share of the steps.",
        )


# ------------------------------------------------------------------ paths


def check_paths(paths: Paths, sweep_id: str | None = None) -> None:
    """Refuse invalid addresses, folders that others can change, and symbolic links; write nothing.

    The root itself may be a link, so that it can be on a larger disk.

    Raises:
        BadInput: A path or address is wrong.
    """
    parse(paths.ledger_url)
    address.check(paths.tracking_uri)
    if paths.store:
        storage.store.check(paths.store)
    if paths.root.exists():
        _refuse_foreign(paths.root)
    for folder in _folders(paths, sweep_id):
        if folder.is_symlink():
            got = f"a symbolic link to {folder.readlink()}"
            raise BadInput(str(folder), "must be a folder below the root", got, "Remove the link.")
    if paths.token.is_symlink() or (paths.token.exists() and _mode(paths.token) & 0o077):
        got = "a symbolic link" if paths.token.is_symlink() else f"mode {_mode(paths.token):o}"
        remedy = f"Run `chmod 600 {paths.token}`, or remove it: the next run creates a new one."
        raise BadInput(str(paths.token), "must be a file readable by its owner alone", got, remedy)


def check_shared_paths(paths: Paths) -> None:
    """Refuse paths that only this host can read, for a cluster of several hosts.

    Raises:
        BadInput: A path is not shared.
    """
    if is_file(parse(paths.ledger_url)):
        raise BadInput(
            "ledger",
            "must be on a server where a sweep runs on several hosts, so that all of them can read it",
            f"a SQLite file, {paths.ledger_url}",
            "Set SWEEP_LEDGER=postgresql://user@host/database; `make up` starts one.",
        )
    if not paths.store and file_system(paths.root) not in NETWORK_FILE_SYSTEMS:
        raise BadInput(
            "checkpoints",
            "must be on storage that all hosts share: a trial may resume on another host",
            f"the local disk, {paths.root}",
            "Set SWEEP_CHECKPOINTS=s3://bucket/sweeps, or file:///... on a disk that all hosts share.",
        )


def check_checkpoints(paths: Paths, ledger: Ledger, sweep_id: str) -> None:
    """Refuse to resume a sweep if this machine has none of its unfinished trials' checkpoints.

    Raises:
        BadInput: They are on another machine, so every trial would start over.
        NoStore: The shared store does not answer.
    """
    unfinished = {trial.key for trial in ledger.trial_outlines(sweep_id) if trial.state in UNFINISHED_TRIAL}
    rows = [row for row in ledger.checkpoints(sweep_id) if row.kind == "last" and row.trial_key in unfinished]
    if rows and not any(
        storage.store.holds(paths, ledger.id, sweep_id, row.trial_key, row.path) for row in rows
    ):
        raise BadInput(
            f"checkpoints of {sweep_id}",
            "must be on this machine or in the shared store",
            f"none of {len(rows)}, such as {rows[0].path}",
            "Resume it where they are, or with the SWEEP_CHECKPOINTS that it had; `--new` starts over.",
        )


def _folders(paths: Paths, sweep_id: str | None) -> Iterator[Path]:
    yield from (paths.artifacts, paths.ray, paths.checkpoints(""), paths.log("", "").parent)
    if sweep_id is not None:
        own = paths.checkpoints(sweep_id)
        yield from (own, paths.ray / sweep_id, paths.report(sweep_id), paths.log(sweep_id, "").parent)
        if own.is_dir() and not own.is_symlink():
            yield from own.glob("*")


def _refuse_foreign(root: Path) -> None:
    status = root.stat()
    if status.st_uid not in (os.geteuid(), 0):
        got = f"the folder of user {status.st_uid}"
        raise BadInput(str(root), "must belong to the user who runs the sweep", got, "Name another --root.")
    if status.st_mode & stat.S_IWOTH:
        remedy = f"Run `chmod o-w {root}`."
        raise BadInput(str(root), "must not be writable by other users", f"mode {_mode(root):o}", remedy)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ------------------------------------------------------------------ cost


@dataclass(frozen=True)
class Estimate:
    """The measured cost of one trial.

    Attributes:
        source: Id of the sweep of the measurement, on the machine of that sweep.
        seconds: Seconds of training and evaluation of a complete trial, without compilation.
        bytes: Size of its largest checkpoint in bytes: weights and optimiser state, without activations.
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
    same_batch = before["training"].get("batch_size") == now["training"].get("batch_size")
    return same_batch and all(before.get(name) == now.get(name) for name in _PROGRAM)


def _measured(record: SweepRecord, sweep: SweepConfig, ledger: Ledger) -> Estimate | None:
    costs = [sum(row.metrics.get(name, 0.0) for name in _COSTS) for row in ledger.reports(record.id)]
    if not costs:
        return None
    # Each report covers one interval. The median ignores the first one, which waits for the device.
    step_seconds = sorted(costs)[len(costs) // 2] / record.document["training"]["interval"]
    sizes = [row.bytes for row in ledger.checkpoints(record.id)]
    return Estimate(record.id, step_seconds * sweep.training.steps, max(sizes, default=0))
