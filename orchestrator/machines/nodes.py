"""The machines that trials run on: how many attempts fit, and why none does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """What one machine offers.

    Attributes:
        cpus: processors.
        gpus: devices.
        free_cpus: processors that nobody uses now.
        free_gpus: devices, or shares of them, that nobody uses now.
    """

    cpus: float
    gpus: float
    free_cpus: float = 0.0
    free_gpus: float = 0.0


def fitting(nodes: Iterable[Node], cpu: float, gpu: float) -> int:
    """Return how many attempts with these resources fit on nodes that do nothing else."""
    return sum(_times(node.cpus, node.gpus, cpu, gpu) for node in nodes)


def why_none(nodes: Sequence[Node], cpu: float, gpu: float) -> str:
    """Return why no attempt with these resources starts, such as `no node with 1 GPU; 3 nodes, 0 free`."""
    wanted = " and ".join(f"{asked:g} {name}" for asked, name in ((cpu, "CPU"), (gpu, "GPU")) if asked)
    if gpu and not any(node.gpus >= gpu for node in nodes):
        wanted = f"{gpu:g} GPU"
    free = sum(_times(node.free_cpus, node.free_gpus, cpu, gpu) > 0 for node in nodes)
    lack = "no free node" if fitting(nodes, cpu, gpu) else "no node"
    return f"{lack} with {wanted}; {len(nodes)} node{'' if len(nodes) == 1 else 's'}, {free} free"


def _times(cpus: float, gpus: float, cpu: float, gpu: float) -> int:
    # A share such as 1/3 must not lose a trial to rounding.
    return int(min(there / asked + 1e-6 for there, asked in ((cpus, cpu), (gpus, gpu)) if asked))
