"""The resources of a cluster, and the Ray that sweeps share on a machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import BadInput, NoCluster
from orchestrator.schedule import ray_private
from orchestrator.schedule.resources import REFUSED, cluster_hardware
from tests.shared_ray import own_ray

CONNECT = """
import sys
from collections import Counter
from pathlib import Path
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment
environment.prepare(Path(sys.argv[1]) / "token")
from orchestrator.schedule import cluster
from orchestrator.schedule.resources import AvailableResources
with cluster.connected(Hardware(cpus=1, gpus=0)):
    resources = AvailableResources(1, 0)
    resources.request(Counter({(1.0, 0.0): 3}))
    resources.request(Counter())
    print(resources.capacity())
"""


@pytest.mark.ray
@pytest.mark.slow
def test_a_head_that_another_user_started_is_not_joined(temporary: Path) -> None:
    """An earlier `ray start --head` leaves its address in Ray's folder."""
    (temporary / "ray").mkdir()
    (temporary / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with own_ray(temporary) as variables:
        done = subprocess.run(
            [sys.executable, "-c", CONNECT, str(temporary)],
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout.strip() == "1", done.stderr


def test_an_address_of_rays_client_is_refused() -> None:
    with pytest.raises(BadInput, match="must be reached directly"):
        cluster_hardware("ray://head:10001")


@pytest.mark.parametrize("address", ["auto", "local"])
def test_an_address_that_ray_would_read_from_a_file_is_refused(address: str) -> None:
    """Every account of the machine can write that file, and would be sent the token."""
    with pytest.raises(NoCluster, match="must be the host:port of a head"):
        cluster_hardware(address)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "no address"])
def test_an_address_without_a_cluster_is_reported(address: str) -> None:
    with pytest.raises(NoCluster, match=f"RAY_ADDRESS={address}"):
        cluster_hardware(address)


@pytest.fixture
def port() -> Iterator[int]:
    """Return a port that accepts connections at every address of this machine: Ray replaces 127.0.0.1."""
    with socket.create_server(("", 0)) as server:
        yield server.getsockname()[1]


def executable(folder: Path, script: str) -> str:
    """Return a program that runs a shell script in place of Python."""
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        ("exit 0", BadInput, "must refuse connections without a token"),
        ("echo a traceback >&2; echo it crashed >&2; exit 1", NoCluster, "got it crashed"),
        ("exit 1", NoCluster, "got exit code 1 of the check"),
    ],
)
def test_a_cluster_is_open_unless_it_refuses_a_connection_without_a_token(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    port: int,
    script: str,
    error: type[Exception],
    message: str,
) -> None:
    """The process that tries it without a token may fail for any other reason."""
    monkeypatch.setattr(sys, "executable", executable(tmp_path, script))
    answer = ray_private.ClusterState([("10.0.0.1", {"CPU": 4.0})], [])
    monkeypatch.setattr(ray_private, "cluster_state", lambda _: answer)
    with pytest.raises(error, match=message):
        cluster_hardware(f"127.0.0.1:{port}")


def test_a_cluster_that_refuses_a_connection_without_a_token_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    monkeypatch.setattr(sys, "executable", executable(tmp_path, f"exit {REFUSED}"))
    answer = ray_private.ClusterState([("10.0.0.1", {"CPU": 4.0})], [])
    monkeypatch.setattr(ray_private, "cluster_state", lambda _: answer)
    assert cluster_hardware(f"127.0.0.1:{port}").cpus == 4
