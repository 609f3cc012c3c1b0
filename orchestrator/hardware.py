"""What this machine can run trials on, found without importing JAX or Ray."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import BadInput

HOST_DEVICES = "SWEEP_HOST_DEVICES"
"""Environment variable: how many devices of the host stand in for GPUs, where what shares them is tried."""

_GPU_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin", "jax_rocm7_plugin")


@dataclass(frozen=True)
class Hardware:
    """Counts of what one machine offers.

    Attributes:
        cpus: processors this process may use.
        gpus: NVIDIA devices this process may see, or what stands in for them.
    """

    cpus: int
    gpus: int


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
    if hardware.gpus and not host_devices() and not any(importlib.util.find_spec(name) for name in plugins):
        raise BadInput(
            "this machine",
            f"JAX must be able to use its {hardware.gpus} GPU(s)",
            "a JAX for the CPU alone",
            "Run `make setup CUDA=13`, or insist on the CPU with `CUDA_VISIBLE_DEVICES= `.",
        )
