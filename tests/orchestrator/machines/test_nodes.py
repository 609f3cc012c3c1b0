"""How many attempts fit on nodes, and why none does."""

from __future__ import annotations

import pytest

from orchestrator.machines.hardware import Hardware
from orchestrator.machines.nodes import Node, fitting, why_none

CPU_NODE = Node(cpus=8, gpus=0, free_cpus=8)
GPU_NODE = Node(cpus=4, gpus=1, free_cpus=4, free_gpus=1)
TAKEN = Node(cpus=4, gpus=1)


@pytest.mark.parametrize(
    ("cpu", "gpu", "fit"),
    [(1, 0, 16), (1, 1, 2), (4, 0.5, 2), (1, 1 / 3, 6), (5, 1, 0), (0.5, 0, 32), (1, 2, 0)],
)
def test_what_fits_fits_on_one_node_each(cpu: float, gpu: float, fit: int) -> None:
    assert fitting([CPU_NODE, GPU_NODE, TAKEN], cpu, gpu) == fit


def test_the_reason_names_what_is_missing() -> None:
    assert why_none([CPU_NODE] * 3, 1, 1) == "no node with 1 GPU; 3 nodes, 0 free"
    assert why_none([], 1, 1) == "no node with 1 GPU; 0 nodes, 0 free"
    assert why_none([TAKEN], 1, 0.5) == "no free node with 1 CPU and 0.5 GPU; 1 node, 0 free"
    assert why_none([TAKEN, GPU_NODE], 5, 1) == "no node with 5 CPU and 1 GPU; 2 nodes, 0 free"


def test_a_cluster_offers_its_largest_nodes_but_no_mixture_of_them() -> None:
    there = Hardware.of([CPU_NODE, GPU_NODE])
    assert (there.cpus, there.gpus) == (8, 1)
    assert there.holds(4, 1)
    assert not there.holds(8, 1)
    assert Hardware.of([]).gpus == 0
