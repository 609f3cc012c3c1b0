"""The environment of Ray and of the workers."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from orchestrator.schedule.environment import prepare, worker_environment


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))


def test_token_is_for_the_owner_alone(tmp_path: Path) -> None:
    token = tmp_path / "ray-token"
    prepare(0.0, token)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert len(token.read_text()) == 64
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_token_is_kept(tmp_path: Path) -> None:
    token = tmp_path / "ray-token"
    prepare(0.0, token)
    first = token.read_text()
    prepare(0.0, token)
    assert token.read_text() == first


def test_a_trial_without_a_gpu_never_sees_one() -> None:
    assert worker_environment(0.0)["JAX_PLATFORMS"] == "cpu"


@pytest.mark.parametrize(("share", "fraction"), [(1 / 8, "0.113"), (1.0, "0.900"), (2.0, "0.900")])
def test_memory_follows_the_share(share: float, fraction: str) -> None:
    assert set(worker_environment(share).values()) == {fraction}
