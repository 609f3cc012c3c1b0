"""A cluster file that holds a credential or opens a port is refused; the message names the line."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run_command
from orchestrator.machines.cluster_file import ensure_token, problem_of_kind, problems, problems_of_text

ROOT = Path(__file__).parents[3]
SOUND: Mapping[str, Any] = {
    "cluster_name": "sweeps",
    "provider": {"type": "local", "head_ip": "10.0.0.1", "worker_ips": []},
    "auth": {"ssh_user": "me", "ssh_private_key": "id"},
    "file_mounts": {"~/sweeps": ".", "~/sweeps/mlruns/ray-token": "mlruns/ray-token"},
}
MODES = {"id": 0o600, "mlruns/ray-token": 0o600, ".": 0o755}


def messages(document: Mapping[str, Any], **modes: int | None) -> list[str]:
    return [str(problem) for problem in problems("c.yaml", document, {**MODES, **modes}.get)]


def test_a_correct_file_passes() -> None:
    assert messages(SOUND) == []


@pytest.mark.parametrize(
    ("line", "message"),
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
def test_a_credential_or_an_open_port_is_named_with_its_line(line: str, message: str) -> None:
    (problem,) = [str(problem) for problem in problems_of_text("c.yaml", f"a: 1\n{line}\n")]
    assert problem.startswith(("c.yaml:2:", "c.yaml:3:"))
    assert message in problem


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
def test_a_harmless_line_passes(line: str) -> None:
    assert list(problems_of_text("c.yaml", line)) == []


def test_keys_that_others_can_read_are_refused() -> None:
    assert "mode 0644" in messages(SOUND, id=0o644)[0]
    assert "mode 0640" in messages(SOUND, **{"mlruns/ray-token": 0o640})[0]
    assert "cluster token" in messages(SOUND, **{"mlruns/ray-token": None})[0]


def test_a_cluster_without_a_token_is_refused() -> None:
    (message,) = messages({**SOUND, "file_mounts": {"~/sweeps": "."}})
    assert "must copy a token to every node" in message


def test_a_key_that_is_not_filled_in_is_named() -> None:
    (message,) = messages({**SOUND, "auth": {"ssh_user": "FILL-IN", "ssh_private_key": "id"}})
    assert "auth.ssh_user" in message


def test_a_mount_of_a_missing_file_is_named() -> None:
    (message,) = messages({**SOUND, "file_mounts": {**SOUND["file_mounts"], "~/sweeps/data": "data"}})
    assert "mkdir -p data" in message


def test_rays_own_security_group_is_refused() -> None:
    """It opens port 22 to all addresses."""
    nodes = {"gpu": {"node_config": {"InstanceType": "g5.xlarge"}}}
    (message,) = messages({**SOUND, "provider": {"type": "aws"}, "available_node_types": nodes})
    assert "available_node_types.gpu" in message


def test_the_verb_exits_with_2_and_prints_a_line_for_each_problem(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("provider: {type: local}\ntoken_url: https://me:secret@host\nopen: 0.0.0.0/0\n")
    assert run_command(["cluster", "check", str(file)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize("file", ["search_spaces/listops.yaml", "README.md", "pyproject.toml"])
def test_a_file_that_starts_nothing_is_refused(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["cluster", "check", str(ROOT / file)]) == 2
    assert "`provider`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "file", [path for path in (ROOT / "cluster").rglob("*") if path.suffix in {".yaml", ".sh", ".service"}]
)
def test_each_file_of_the_project_is_of_a_known_kind(file: Path) -> None:
    assert problem_of_kind(file.name, file.read_text(encoding="utf-8")) is None


def test_the_token_is_created_once_and_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    for _ in range(2):
        assert run_command(["cluster", "token", "--root", str(tmp_path)]) == 0
    token = tmp_path / "ray-token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text()) == 64


def test_a_key_without_a_value_is_no_error_of_this_check() -> None:
    assert messages({**SOUND, "auth": None, "provider": None}) == []


def test_processes_that_create_a_token_at_once_read_the_same_one(tmp_path: Path) -> None:
    """None sees an empty file, and nothing but the token is left."""

    def created(file: Path, ready: threading.Barrier) -> str:
        ready.wait()
        return ensure_token(file).read_text()

    with ThreadPoolExecutor(8) as threads:
        for number in range(100):
            file, ready = tmp_path / str(number) / "ray-token", threading.Barrier(8)
            read = [threads.submit(created, file, ready) for _ in range(8)]
            (token,) = {one.result(timeout=60) for one in read}
            assert len(token) == 64
            assert [path.name for path in file.parent.iterdir()] == ["ray-token"]


@pytest.mark.parametrize(("text", "message"), [("", "is empty"), (None, "does not exist")])
def test_a_missing_cluster_file_is_not_called_a_search_space(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, message: str
) -> None:
    """The reader of search-space files reads it."""
    file = tmp_path / "c.yaml"
    if text is not None:
        file.write_text(text)
    assert run_command(["cluster", "check", str(file)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "task" not in error
    assert "search" not in error
