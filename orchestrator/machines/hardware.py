"""Processors and GPUs of this machine or of a cluster. This module imports neither JAX nor Ray."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import BadInput, counted
from orchestrator.sharing.capacity import apart

HOST_DEVICES = "SWEEP_HOST_DEVICES"
"""Environment variable: number of host devices that replace GPUs, to try shared engines without a GPU."""

VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Environment variables that select the visible GPUs of a process."""

_GPU_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin", "jax_rocm7_plugin")


@dataclass(frozen=True)
class Node:
    """One machine of a cluster.

    Attributes:
        cpus: Processors.
        gpus: GPUs.
        free_cpus: Free processors.
        free_gpus: Free GPUs or shares of them.
    """

    cpus: float
    gpus: float
    free_cpus: float = 0.0
    free_gpus: float = 0.0


def fitting(nodes: Iterable[Node], cpu: float, gpu: float, per_attempt: int = 1) -> int:
    """Return the number of attempts that fit on idle nodes.

    Args:
        nodes: Nodes of a cluster.
        cpu: Processors of an attempt on each of its nodes.
        gpu: GPUs of an attempt on each of its nodes, or its share of one.
        per_attempt: Number of different nodes that an attempt needs.
    """
    return apart([_times(node.cpus, node.gpus, cpu, gpu) for node in nodes], per_attempt)


def why_none(nodes: Sequence[Node], cpu: float, gpu: float, per_attempt: int = 1) -> str:
    """Return the reason why no attempt starts, such as `no node with 1 GPU; 3 nodes, 0 free`."""
    request = " and ".join(f"{amount:g} {name}" for amount, name in ((cpu, "CPU"), (gpu, "GPU")) if amount)
    if gpu and not any(node.gpus >= gpu for node in nodes):
        request = f"{gpu:g} GPU"
    free = sum(_times(node.free_cpus, node.free_gpus, cpu, gpu) > 0 for node in nodes)
    is_possible = fitting(nodes, cpu, gpu, per_attempt)
    one = "no" if per_attempt == 1 else f"not {per_attempt}"
    shortage = f"{one} {'free ' if is_possible else ''}node{'s' * (per_attempt > 1)}"
    return f"{shortage} with {request}; {counted(len(nodes), 'node')}, {free} free"


def _times(cpus: float, gpus: float, cpu: float, gpu: float) -> int:
    # A share such as 1/3 must not lose a trial to rounding.
    return int(min(amount / request + 1e-6 for amount, request in ((cpus, cpu), (gpus, gpu)) if request))


@dataclass(frozen=True)
class Hardware:
    """The resources of this machine, or of the largest nodes of a cluster.

    Example:

        detect().phrase  # "this machine has 0 GPU(s), 2 CPU(s)"

    Attributes:
        cpus: Processors that this process may use, or the maximum of the nodes.
        gpus: Visible NVIDIA or AMD devices or host devices, or the maximum of the nodes.
        nodes: Nodes of a cluster, including those that its autoscaler may add; empty for this machine.
        hosts: Number of machines that the cluster has or may have.
    """

    cpus: int
    gpus: int
    nodes: tuple[Node, ...] = ()
    hosts: int = 1

    @classmethod
    def of(cls, nodes: Sequence[Node], hosts: int = 1) -> Hardware:
        """Return the resources of a cluster."""
        cpus = max((node.cpus for node in nodes), default=0)
        return cls(int(cpus), int(max((node.gpus for node in nodes), default=0)), tuple(nodes), hosts)

    @property
    def phrase(self) -> str:
        """Return the resources as a clause, such as `this machine has 0 GPU(s), 2 CPU(s)`."""
        where = "a node of the cluster has" if self.nodes else "this machine has"
        return f"{where} {self.gpus} GPU(s), {self.cpus} CPU(s)"

    def holds(self, cpu: float, gpu: float, per_attempt: int = 1) -> bool:
        """Return True if one attempt with these resources fits; see `fitting`."""
        return fitting(self.nodes or [Node(self.cpus, self.gpus)], cpu, gpu, per_attempt) > 0


def detect(devices: Path = Path("/dev"), amd: Path = Path("/sys/class/kfd/kfd/topology/nodes")) -> Hardware:
    """Count the processors and GPUs that this process may use.

    Args:
        devices: Folder of the device files of NVIDIA GPUs.
        amd: Folder in which the AMD driver lists its GPUs, and processors with the id 0.
    """
    gpus = host_devices() or _visible_nvidia(devices) or _visible_amd(amd)
    return Hardware(cpus=_processors(), gpus=gpus)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS, where a process cannot be bound to processors


def host_devices() -> int:
    """Return the number of host devices that replace GPUs."""
    return int(os.environ.get(HOST_DEVICES, "0"))


def _visible_nvidia(devices: Path) -> int:
    present = len([node for node in devices.glob("nvidia[0-9]*") if node.name[6:].isdigit()])
    return _visible(present, "CUDA_VISIBLE_DEVICES")


def _visible_amd(nodes: Path) -> int:
    ids = [file.read_text().strip() for file in nodes.glob("*/gpu_id")]
    present = len([gpu_id for gpu_id in ids if gpu_id not in ("", "0")])
    return _visible(_visible(present, "ROCR_VISIBLE_DEVICES"), "HIP_VISIBLE_DEVICES")


def _visible(present: int, variable: str) -> int:
    """Return the number of present GPUs that an environment variable leaves visible."""
    visible = os.environ.get(variable)
    if visible is None:
        return present
    return min(present, len([name for name in visible.split(",") if name.strip() not in ("", "-1")]))


def require_gpu_jax(hardware: Hardware, *, plugins: tuple[str, ...] = _GPU_PLUGINS) -> None:
    """Refuse to train on the CPU of a machine that has a GPU.

    Args:
        hardware: Hardware of this machine, or of a cluster, which is not checked.
        plugins: Modules that let JAX use a GPU; one of them must be installed.

    Raises:
        BadInput: This machine has a GPU and none of the plugins is installed.
    """
    on_this_machine = hardware.gpus and not hardware.nodes and not host_devices()
    if on_this_machine and not any(importlib.util.find_spec(name) for name in plugins):
        raise BadInput(
            "this machine",
            f"JAX must be able to use its {hardware.gpus} GPU(s)",
            "a JAX for the CPU alone",
            "Run `make setup CUDA=13` (NVIDIA) or install JAX for ROCm (AMD), or choose the CPU with"
            " `CUDA_VISIBLE_DEVICES= ` or `ROCR_VISIBLE_DEVICES= `.",
        )
