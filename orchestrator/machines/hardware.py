"""What this machine can run trials on, found without importing JAX or Ray."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import BadInput
from orchestrator.machines.nodes import Node, fitting

HOST_DEVICES = "SWEEP_HOST_DEVICES"
"""Environment variable: how many devices of the host stand in for GPUs, where what shares them is tried."""

_GPU_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin", "jax_rocm7_plugin")


@dataclass(frozen=True)
class Hardware:
    """What trials can run on: this machine, or the largest nodes of a cluster.

    Attributes:
        cpus: processors this process may use, or the most that a node has.
        gpus: NVIDIA devices this process may see, or what stands in for them, or the most that a node has.
        nodes: the nodes of a cluster, those that it may get among them; none for this machine.
        hosts: how many machines there are, or may be.
    """

    cpus: int
    gpus: int
    nodes: tuple[Node, ...] = ()
    hosts: int = 1

    @classmethod
    def of(cls, nodes: Sequence[Node], hosts: int = 1) -> Hardware:
        """Return what a cluster offers."""
        cpus = max((node.cpus for node in nodes), default=0)
        return cls(int(cpus), int(max((node.gpus for node in nodes), default=0)), tuple(nodes), hosts)

    @property
    def phrase(self) -> str:
        """Return what there is, for a sentence."""
        where = "a node of the cluster has" if self.nodes else "this machine has"
        return f"{where} {self.gpus} GPU(s), {self.cpus} CPU(s)"

    def holds(self, cpu: float, gpu: float) -> bool:
        """Tell whether one attempt with these resources fits."""
        return fitting(self.nodes or [Node(self.cpus, self.gpus)], cpu, gpu) > 0


def detect(devices: Path = Path("/dev")) -> Hardware:
    """Count the processors and GPUs that this process may use."""
    return Hardware(cpus=len(os.sched_getaffinity(0)), gpus=host_devices() or _visible_gpus(devices))


def host_devices() -> int:
    """Return how many devices of the host stand in for GPUs."""
    return int(os.environ.get(HOST_DEVICES, "0"))


def _visible_gpus(devices: Path) -> int:
    present = len([node for node in devices.glob("nvidia[0-9]*") if node.name[6:].isdigit()])
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    return min(present, len([name for name in visible.split(",") if name.strip() not in ("", "-1")]))


def require_gpu_jax(hardware: Hardware, *, plugins: tuple[str, ...] = _GPU_PLUGINS) -> None:
    """Refuse to run on the CPU by mistake.

    Raises:
        BadInput: if a GPU is there, and JAX has no plugin to use it.
    """
    on_this_machine = hardware.gpus and not hardware.nodes and not host_devices()
    if on_this_machine and not any(importlib.util.find_spec(name) for name in plugins):
        raise BadInput(
            "this machine",
            f"JAX must be able to use its {hardware.gpus} GPU(s)",
            "a JAX for the CPU alone",
            "Run `make setup CUDA=13`, or insist on the CPU with `CUDA_VISIBLE_DEVICES= `.",
        )
