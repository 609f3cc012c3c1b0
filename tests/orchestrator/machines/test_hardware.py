"""Hardware is counted without JAX, attempts are fitted to nodes, and no GPU is ignored silently."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import BadInput
from orchestrator.machines.hardware import Hardware, Node, detect, fitting, require_gpu_jax, why_none

CPU_NODE = Node(cpus=8, gpus=0, free_cpus=8)
GPU_NODE = Node(cpus=4, gpus=1, free_cpus=4, free_gpus=1)
BUSY_NODE = Node(cpus=4, gpus=1)


def devices(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).touch()
    return folder


def test_only_numbered_devices_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    hardware = detect(devices(tmp_path, "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-modeset"))
    assert hardware.gpus == 2


@pytest.mark.parametrize(("visible", "count"), [("", 0), ("-1", 0), ("0", 1), ("0,1", 2), ("0,1,2,3", 2)])
def test_visible_devices_limit_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, count: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert detect(devices(tmp_path, "nvidia0", "nvidia1")).gpus == count


@pytest.mark.parametrize(
    ("variables", "count"), [({}, 2), ({"ROCR_VISIBLE_DEVICES": "1"}, 1), ({"HIP_VISIBLE_DEVICES": ""}, 0)]
)
def test_amd_devices_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], count: int
) -> None:
    """A machine whose only GPUs are AMD's must not silently train on its processors."""
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for node, gpu in enumerate(("0", "51234", "8817")):  # the first node is a processor
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "gpu_id").write_text(f"{gpu}\n")
    assert detect(tmp_path / "dev", tmp_path).gpus == count


def test_processors_are_counted_where_a_process_cannot_be_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has no `sched_getaffinity`."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert detect(tmp_path, tmp_path).cpus == os.cpu_count()


def test_a_gpu_without_its_jax_plugin_is_refused() -> None:
    with pytest.raises(BadInput, match="make setup CUDA=13"):
        require_gpu_jax(Hardware(cpus=2, gpus=1), plugins=("no_such_plugin",))


def test_a_gpu_with_its_jax_plugin_is_accepted() -> None:
    require_gpu_jax(Hardware(cpus=2, gpus=1), plugins=("json",))


def test_a_machine_without_a_gpu_needs_no_plugin() -> None:
    require_gpu_jax(Hardware(cpus=2, gpus=0), plugins=("no_such_plugin",))


@pytest.mark.parametrize(
    ("cpu", "gpu", "fit"),
    [(1, 0, 16), (1, 1, 2), (4, 0.5, 2), (1, 1 / 3, 6), (5, 1, 0), (0.5, 0, 32), (1, 2, 0)],
)
def test_each_attempt_fits_on_one_node(cpu: float, gpu: float, fit: int) -> None:
    assert fitting([CPU_NODE, GPU_NODE, BUSY_NODE], cpu, gpu) == fit


def test_the_reason_names_the_missing_resource() -> None:
    assert why_none([CPU_NODE] * 3, 1, 1) == "no node with 1 GPU; 3 nodes, 0 free"
    assert why_none([], 1, 1) == "no node with 1 GPU; 0 nodes, 0 free"
    assert why_none([BUSY_NODE], 1, 0.5) == "no free node with 1 CPU and 0.5 GPU; 1 node, 0 free"
    assert why_none([BUSY_NODE, GPU_NODE], 5, 1) == "no node with 5 CPU and 1 GPU; 2 nodes, 0 free"


def test_a_trial_must_fit_on_one_node_of_a_cluster() -> None:
    hardware = Hardware.of([CPU_NODE, GPU_NODE])
    assert (hardware.cpus, hardware.gpus) == (8, 1)
    assert hardware.holds(4, 1)
    assert not hardware.holds(8, 1)
    assert Hardware.of([]).gpus == 0
