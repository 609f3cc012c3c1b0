"""The environment of Ray, and the token."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from orchestrator.schedule.environment import prepare


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))


def test_the_token_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    token = tmp_path / "ray-token"
    prepare(0.0, token)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert len(token.read_text()) == 64
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_the_token_is_kept(tmp_path: Path) -> None:
    token = tmp_path / "ray-token"
    prepare(0.0, token)
    first = token.read_text()
    prepare(0.0, token)
    assert token.read_text() == first


def test_the_token_of_a_cluster_is_used_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/the/clusters/token")
    prepare(0.0, tmp_path / "ray-token")
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == "/the/clusters/token"
    assert not (tmp_path / "ray-token").exists()
