"""The environment of Ray and of workers, and the token."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import BadInput
from orchestrator.machines.head import RUNTIME
from orchestrator.schedule.environment import HUGE_PAGES, of_head, of_workers, prepare
from orchestrator.training import process

PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
FAULTS = """
import ctypes, resource
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
ctypes.memset(c.malloc(2**26), 1, 2**26)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Prints the page faults of writing to 64 MiB of new memory."""


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)


@pytest.mark.parametrize("address", [None, "", "head:6379"])
def test_the_token_is_kept_and_readable_by_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    """It is that of the Ray of this machine, or of the user's clusters."""
    monkeypatch.setenv(RUNTIME, str(tmp_path / "runtime"))
    of_cluster = tmp_path / "ray-token"
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    prepare(of_cluster)
    token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    assert (token == of_cluster) == bool(address)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert len(first := token.read_text()) == 64
    assert os.environ["RAY_AUTH_MODE"] == "token"
    prepare(of_cluster)
    assert token.read_text() == first


def test_workers_get_the_environment_of_their_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the head has, and their driver has not, is removed; Ray's own variables are left alone."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of this sweep")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.delenv("LC_ALL", raising=False)
    own = of_workers(0.0)
    assert own["AWS_SECRET_ACCESS_KEY"] == "of this sweep"
    assert own["LC_ALL"] is None
    assert own["JAX_PLATFORMS"] == "cpu"
    assert "CUDA_VISIBLE_DEVICES" not in own, "Ray sets it"
    assert not any(name.startswith("RAY_") for name in own)
    monkeypatch.setenv("RAY_ADDRESS", "")
    assert of_workers(0.0) == own, "an empty address names no cluster"
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert of_workers(0.0).keys() == {
        "AWS_SECRET_ACCESS_KEY",
        process.DEPRECATED_MEMORY_FRACTION,
        *process.worker_environment(0.0),
    }


def test_workers_get_neither_unknown_variables_nor_secrets_unless_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_mlflow = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_USERNAME")
    for name in (*of_mlflow, "AWS_SHARED_CREDENTIALS_FILE", "HF_TOKEN", "GITHUB_TOKEN", "NAMED_LIKE_NOTHING"):
        monkeypatch.setenv(name, "/canary-of-all")
    monkeypatch.setenv("SWEEP_VARIABLES", "HF_TOKEN")
    own = of_workers(0.0)
    needed = {
        "HF_TOKEN",
        "MLFLOW_TRACKING_PASSWORD",
        "MLFLOW_TRACKING_USERNAME",
        "AWS_SHARED_CREDENTIALS_FILE",
    }
    assert {name for name, value in own.items() if value == "/canary-of-all"} == needed
    assert own["SWEEP_VARIABLES"] == "HF_TOKEN"
    assert {"GITHUB_TOKEN", "NAMED_LIKE_NOTHING"} <= {*str(own["SWEEP_LEFT_OUT"]).split(",")}
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    needed.remove("AWS_SHARED_CREDENTIALS_FILE")
    assert {name for name, value in of_workers(0.0).items() if value == "/canary-of-all"} == needed


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_token_that_others_can_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    token = tmp_path / "token"
    token.write_text("0" * 64)
    token.chmod(mode)
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    with pytest.raises(
        BadInput, match=f"RAY_AUTH_TOKEN_PATH must be readable by its owner alone.*{mode:04o}"
    ):
        prepare(tmp_path / "unused")


def test_the_token_of_a_cluster_is_used_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/the/clusters/token")
    prepare(tmp_path / "ray-token")
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == "/the/clusters/token"
    assert not (tmp_path / "ray-token").exists()


@pytest.mark.skipif(
    not PAGES.exists() or "[never]" in PAGES.read_text(), reason="this Linux gives out no huge pages"
)
def test_memory_comes_in_huge_pages() -> None:
    """16,384 pages of 4 KiB, or 32 of 2 MiB and a few at either end."""
    faults = {}
    for name, variables in (("small", dict.fromkeys(HUGE_PAGES, "")), ("huge", HUGE_PAGES)):
        child = [sys.executable, "-c", FAULTS]
        printed = subprocess.run(child, env={**os.environ, **variables}, capture_output=True, check=True)
        faults[name] = int(printed.stdout)
    assert faults["huge"] < 2000
    assert "[always]" in PAGES.read_text() or faults["small"] > 16_000


def test_huge_pages_unless_the_user_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has the variable as well, so that it finds its head's the same as its own."""
    monkeypatch.setenv(RUNTIME, str(tmp_path / "runtime"))
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    prepare(tmp_path / "ray-token")
    assert of_head()["GLIBC_TUNABLES"] == os.environ["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    for own in ("", "glibc.malloc.check=1"):
        monkeypatch.setenv("GLIBC_TUNABLES", own)
        prepare(tmp_path / "ray-token")
        assert of_head()["GLIBC_TUNABLES"] == os.environ["GLIBC_TUNABLES"] == own
