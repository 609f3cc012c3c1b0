"""Hardware is found without JAX, and a GPU is never ignored by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import BadInput
from orchestrator.machines.hardware import Hardware, detect, require_gpu_jax


def devices(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).touch()
    return folder


def test_counts_numbered_devices_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = detect(devices(tmp_path, "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-modeset"))
    assert found.gpus == 2


@pytest.mark.parametrize(("visible", "count"), [("", 0), ("-1", 0), ("0", 1), ("0,1", 2), ("0,1,2,3", 2)])
def test_respects_visible_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, count: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert detect(devices(tmp_path, "nvidia0", "nvidia1")).gpus == count


def test_gpu_without_its_jax_is_refused() -> None:
    with pytest.raises(BadInput, match="make setup CUDA=13"):
        require_gpu_jax(Hardware(cpus=2, gpus=1), plugins=("no_such_plugin",))


def test_gpu_with_its_jax_is_fine() -> None:
    require_gpu_jax(Hardware(cpus=2, gpus=1), plugins=("json",))


def test_no_gpu_needs_nothing() -> None:
    require_gpu_jax(Hardware(cpus=2, gpus=0), plugins=("no_such_plugin",))
