"""The checks that a driver makes of a cluster before it uses it, against real heads in namespaces."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.machines.cluster_file import ensure_token
from tests.end_to_end.commands import SMALL, Commands, finish
from tests.end_to_end.network import NetworkHost, Switch, marks

pytestmark = marks(600)
RAY = str(Path(sys.executable).with_name("ray"))
ADDRESS = "10.9.0.1:6379"


@pytest.fixture
def head(switch: Switch, commands: Commands) -> Iterator[NetworkHost]:
    """Yield the first host; it ends before `commands` looks for processes that were left running."""
    host = NetworkHost(switch, 1)
    yield host
    host.end()


def environment(commands: Commands, **changes: str) -> dict[str, str]:
    """Return the environment of a command on a host; `RAY_ADDRESS` names the head."""
    return {
        "SWEEP_ROOT": str(commands.root),
        "SWEEP_DATA": str(commands.shared / "data"),
        "JAX_COMPILATION_CACHE_DIR": os.environ["JAX_COMPILATION_CACHE_DIR"],
        "SWEEP_TEST_MARK": commands.mark,
        "RAY_ADDRESS": ADDRESS,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        **changes,
    }


def start_sweep(host: NetworkHost, commands: Commands, *options: str) -> subprocess.Popen[str]:
    """Start the small sweep on a host."""
    command = [sys.executable, "-m", "orchestrator.sweep", *SMALL, *options]
    return host.run(command, **environment(commands))


def start_head(host: NetworkHost, commands: Commands, **changes: str) -> None:
    """Start the head of a cluster on a host; `changes` replace variables of its environment."""
    environment_of_head = environment(commands, **{**changes, "RAY_ADDRESS": ""})
    own = [f"--node-ip-address={host.address}", "--num-cpus=1", "--include-dashboard=false"]
    command = [RAY, "start", "--head", "--port=6379", *own]
    for _ in range(2):  # Ray's own timeout of 30 s is too short for a busy machine
        code, output = finish(host.run(command, **environment_of_head))
        if code == 0:
            return
    raise AssertionError(output)


def with_token(commands: Commands) -> dict[str, str]:
    """Return the environment variables of a Ray that requires the token of the sweeps."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(ensure_token(commands.root / "ray-token"))}


def test_a_cluster_that_does_not_answer_is_reported_at_once(head: NetworkHost, commands: Commands) -> None:
    """It may be started later, so the exit code is that of a resumable sweep."""
    code, output = finish(start_sweep(head, commands))
    assert code == 4, output
    assert f"RAY_ADDRESS={ADDRESS}: does not answer as a Ray cluster" in output


def test_a_head_that_answers_without_a_token_is_refused(head: NetworkHost, commands: Commands) -> None:
    start_head(head, commands, RAY_AUTH_MODE="disabled")
    code, output = finish(start_sweep(head, commands))
    assert code == 2, output
    assert "must refuse connections without a token" in output
    assert not (commands.root / "sweeps.db").exists()


def test_another_token_is_refused_and_several_hosts_need_shared_stores(
    switch: Switch,
    head: NetworkHost,
    commands: Commands,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    other_token = str(ensure_token(tmp_path / "another-token"))
    start_head(head, commands, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=other_token)
    code, output = finish(start_sweep(head, commands))
    assert code == 2, output
    assert "does not accept the token of this process" in output
    (commands.root / "ray-token").write_text(Path(other_token).read_text())
    code, output = finish(start_sweep(head, commands, "--set", "resources={cpu: 2}"))
    assert code == 2, output
    assert "a node of the cluster has 0 GPU(s), 1 CPU(s)" in output
    second = NetworkHost(switch, 2)
    request.addfinalizer(second.end)
    join = [RAY, "start", f"--address={ADDRESS}", "--node-ip-address=10.9.0.2", "--num-cpus=1"]
    joined = second.run(join, **environment(commands, **with_token(commands), RAY_ADDRESS=""))
    assert finish(joined)[0] == 0
    code, output = finish(start_sweep(head, commands))
    assert code == 2, output
    assert "SWEEP_LEDGER=postgresql://" in output
