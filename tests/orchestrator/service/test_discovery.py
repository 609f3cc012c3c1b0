"""Commands find a service by its file, only while it lives and if no other user can write the file."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api import serving
from orchestrator.errors import BadInput
from orchestrator.ledger.holder import Holder
from orchestrator.service.discovery import announced, running


def test_a_service_is_found_while_it_runs(tmp_path: Path) -> None:
    file = tmp_path / "serve.json"
    assert running(file) is None
    with announced(file) as this:
        assert running(file) == this
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.exists()


@pytest.mark.parametrize("change", [{"start": 1}, {"place": "another boot"}, {"place": ""}])
def test_a_file_of_a_dead_service_is_ignored(tmp_path: Path, change: dict[str, object]) -> None:
    """Another process may have its id by now."""
    file = tmp_path / "serve.json"
    file.write_text(replace(Holder.here(), **change).write())  # type: ignore[arg-type]
    file.chmod(0o600)
    assert running(file) is None


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_is_ignored(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "serve.json"
    with announced(file):
        file.chmod(mode)
        assert running(file) is None


@pytest.mark.parametrize("damage", [b"\xff\x00\xfe", b"{}", b'{"pid": "1"}', b"[1, 2]", b""])
def test_a_damaged_file_is_ignored(tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "serve.json"
    file.write_bytes(damage)
    file.chmod(0o600)
    assert running(file) is None


def test_a_link_is_ignored(tmp_path: Path) -> None:
    file, link = tmp_path / "serve.json", tmp_path / "link.json"
    with announced(file):
        link.symlink_to(file)
        assert running(link) is None


def test_a_service_removes_only_its_own_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.json"
    with announced(file) as this:
        file.write_text(replace(this, pid=1).write())
    assert file.exists()


def test_the_variable_names_the_root_of_a_running_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(serving.SERVER, str(tmp_path))
    with pytest.raises(BadInput, match="must name the root of a running service"):
        serving.running(root=tmp_path / "other")
    with announced(tmp_path / "serve.json"):
        server = serving.running(root=tmp_path / "other")
    assert server is not None
    assert server.root == tmp_path
