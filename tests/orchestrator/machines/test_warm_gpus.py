"""A process that is kept warm on a GPU, and another Ray that needs this GPU; `nvidia-smi` is a stand-in.

A second runtime folder stands for another user, whose Ray has nothing but the locks in common with the first.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from orchestrator.errors import NoCluster
from orchestrator.machines import devices, joining, keeper
from orchestrator.machines.hardware import Hardware
from orchestrator.machines.head import Head, running, runtime_folder
from orchestrator.schedule import environment
from tests.orchestrator.machines.nvidia import Nvidia

pytestmark = [pytest.mark.end_to_end, pytest.mark.ray, pytest.mark.slow]

ONE = Hardware(cpus=1, gpus=1)


@pytest.fixture
def first(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[subprocess.Popen[str], psutil.Process, Head]]:
    """Yield a driver, its worker, which is idle and warm on the only GPU, and the head of their Ray.

    The test goes on as another user.
    """
    Nvidia(tmp_path / "nvidia", monkeypatch).has("GPU-a")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("SWEEP_RAY_LINGER", "600")
    monkeypatch.setenv("SWEEP_RUNTIME", str(temporary / "1"))
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.programs.warm_gpu_driver", str(temporary)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    worker, visible = used(driver)
    assert visible == "GPU-a"
    head = running(runtime_folder())
    assert head is not None
    assert head.devices == ("GPU-a",)
    monkeypatch.setenv("SWEEP_RUNTIME", str(temporary / "2"))
    yield driver, psutil.Process(int(worker)), head
    driver.communicate()
    for name in ("1", "2"):
        monkeypatch.setenv("SWEEP_RUNTIME", str(temporary / name))
        joining.end_shared_ray()


def used(driver: subprocess.Popen[str]) -> list[str]:
    """Let a driver use its worker; return the process of the worker, and the GPUs that it sees."""
    assert driver.stdin is not None
    assert driver.stdout is not None
    driver.stdin.write("use it\n")
    driver.stdin.flush()
    return driver.stdout.readline().split()


@contextmanager
def joined() -> Iterator[Head]:
    """Use the Ray of this process with a GPU."""
    with joining.joined(ONE, environment.of_head()) as head:
        yield head


def test_a_warm_worker_of_an_unused_ray_leaves_its_gpu_to_another_user(
    first: tuple[subprocess.Popen[str], psutil.Process, Head], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stay for ten minutes otherwise, and is gone before the other Ray has the GPU."""
    driver, worker, head = first
    driver.communicate()
    assert driver.returncode == 0
    assert worker.is_running(), "the worker outlives its driver"
    monkeypatch.setattr(devices, "HANDOVER_SECONDS", 60.0)
    with joined() as other:
        assert other.devices == ("GPU-a",)
        assert not worker.is_running()
        assert not head.lives()


def test_a_ray_that_a_driver_uses_keeps_the_gpu_of_an_idle_warm_worker_and_is_named(
    first: tuple[subprocess.Popen[str], psutil.Process, Head], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the driver has left, the other user gets the GPU."""
    driver, worker, head = first
    monkeypatch.setattr(devices, "HANDOVER_SECONDS", 3 * keeper.POLL_SECONDS)
    with pytest.raises(NoCluster, match=rf"GPU 0 \(GPU-a\) is used by .*: process {head.pid} \("), joined():
        pass
    assert used(driver) == [str(worker.pid), "GPU-a"], "the same worker serves its driver again"
    driver.communicate()
    monkeypatch.setattr(devices, "HANDOVER_SECONDS", 60.0)
    with joined() as other:
        assert other.devices == ("GPU-a",)
        assert not worker.is_running()
