"""A cluster file that gives access away is refused, by name of what does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run_command
from orchestrator.machines.cluster_file import problems, problems_of_text

ROOT = Path(__file__).parents[3]
SOUND: Mapping[str, Any] = {
    "cluster_name": "sweeps",
    "provider": {"type": "local", "head_ip": "10.0.0.1", "worker_ips": []},
    "auth": {"ssh_user": "me", "ssh_private_key": "id"},
    "file_mounts": {"~/sweeps": ".", "~/sweeps/mlruns/ray-token": "mlruns/ray-token"},
}
MODES = {"id": 0o600, "mlruns/ray-token": 0o600, ".": 0o755}


def told(document: Mapping[str, Any], **modes: int | None) -> list[str]:
    return [str(problem) for problem in problems("c.yaml", document, {**MODES, **modes}.get)]


def test_a_sound_file_is_sound() -> None:
    assert told(SOUND) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("key: |-\n  -----BEGIN OPENSSH PRIVATE KEY-----", "a private key"),
        ("aws: AKIAIOSFODNN7EXAMPLE", "an access key"),
        ("  - export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI", "a secret"),
        ("  - RAY_AUTH_TOKEN=f00d ray start", "a secret"),
        ("SWEEP_LEDGER: postgresql://me:hunter2@db/sweeps", "a password in an address"),
        ("  - {CidrIp: 0.0.0.0/0}", "to the world"),
        ("  - {CidrIpv6: ::/0}", "to the world"),
        ("  - ray start --head --dashboard-host=0.0.0.0", "to the world"),
        ("  - ray start --head --dashboard-host 10.0.0.1", "to the world"),
        ("  - RAY_AUTH_MODE=disabled ray start --head", "token"),
    ],
)
def test_what_gives_access_away_is_named_with_its_line(line: str, said: str) -> None:
    found = [str(problem) for problem in problems_of_text("c.yaml", f"a: 1\n{line}\n")]
    assert len(found) == 1
    assert found[0].startswith(("c.yaml:2:", "c.yaml:3:"))
    assert said in found[0]


@pytest.mark.parametrize(
    "line",
    [
        "ssh_private_key: ~/.ssh/id_ed25519",
        "RAY_AUTH_TOKEN_PATH=$HOME/sweeps/mlruns/ray-token",
        "SWEEP_LEDGER: postgresql://me@db/sweeps",
        "PGPASSFILE=~/.pgpass",
        "--dashboard-host=127.0.0.1",
        "RAY_AUTH_MODE=token",
        "# 0.0.0.0/0 would open it",
        "version: 10.0.0.0",
    ],
)
def test_what_is_right_passes(line: str) -> None:
    assert list(problems_of_text("c.yaml", line)) == []


def test_keys_that_others_can_read_are_refused() -> None:
    assert "mode 0644" in told(SOUND, id=0o644)[0]
    assert "mode 0640" in told(SOUND, **{"mlruns/ray-token": 0o640})[0]
    assert "cluster token" in told(SOUND, **{"mlruns/ray-token": None})[0]


def test_a_cluster_without_a_token_is_refused() -> None:
    (said,) = told({**SOUND, "file_mounts": {"~/sweeps": "."}})
    assert "must bring a token to every node" in said


def test_what_is_not_filled_in_is_named() -> None:
    (said,) = told({**SOUND, "auth": {"ssh_user": "FILL-IN", "ssh_private_key": "id"}})
    assert "auth.ssh_user" in said


def test_a_mount_that_is_not_here_is_named() -> None:
    (said,) = told({**SOUND, "file_mounts": {**SOUND["file_mounts"], "~/sweeps/data": "data"}})
    assert "mkdir -p data" in said


def test_ray_s_own_security_group_is_refused() -> None:
    """It lets the whole world in at port 22."""
    nodes = {"gpu": {"node_config": {"InstanceType": "g5.xlarge"}}}
    (said,) = told({**SOUND, "provider": {"type": "aws"}, "available_node_types": nodes})
    assert "available_node_types.gpu" in said


def test_the_verb_ends_with_2_and_a_line_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("provider: {type: local}\ntoken_url: https://me:secret@host\nopen: 0.0.0.0/0\n")
    assert run_command(["cluster", "check", str(file)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_token_is_made_once_for_its_owner(tmp_path: Path) -> None:
    for _ in range(2):
        assert run_command(["cluster", "token", "--root", str(tmp_path)]) == 0
    token = tmp_path / "ray-token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text()) == 64
