"""The resources of a cluster, and the Ray that a sweep starts by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import BadInput, NoCluster
from orchestrator.schedule.resources import cluster_hardware

CONNECT = """
import sys
from pathlib import Path
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment
environment.prepare(0.0, Path(sys.argv[1]) / "token")
from orchestrator.schedule import cluster
from orchestrator.schedule.resources import AvailableResources
with cluster.connected(Hardware(cpus=1, gpus=0), 0.0):
    resources = AvailableResources(1, 0)
    resources.request(3)
    resources.request(0)
    print(resources.capacity())
"""


def test_a_head_that_another_user_started_is_not_joined(temporary: Path) -> None:
    """An earlier `ray start --head` leaves its address in Ray's folder."""
    (temporary / "ray").mkdir()
    (temporary / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, str(temporary)],
        env={**environment, "RAY_TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "1", done.stderr


def test_an_address_of_rays_client_is_refused() -> None:
    with pytest.raises(BadInput, match="must be reached directly"):
        cluster_hardware("ray://head:10001")


@pytest.mark.parametrize("address", ["127.0.0.1:9", "no address"])
def test_an_address_without_a_cluster_is_reported(address: str) -> None:
    with pytest.raises(NoCluster, match=f"RAY_ADDRESS={address}"):
        cluster_hardware(address)
