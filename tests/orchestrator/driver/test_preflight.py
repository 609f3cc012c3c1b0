"""A sweep writes only to paths that no other user can change."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.driver import preflight
from orchestrator.errors import BadInput
from orchestrator.storage.paths import Paths

SWEEP = "copy-0123abcd"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "mlruns")
    paths.create()
    paths.trial_checkpoints(SWEEP, f"{SWEEP}-0").mkdir(parents=True)
    paths.token.touch(0o600)
    return paths


def test_an_ordinary_root_is_accepted(paths: Paths, tmp_path: Path) -> None:
    """So is one that does not exist yet, and a link to a larger disk."""
    preflight.check(paths, SWEEP)
    preflight.check(Paths(tmp_path / "nowhere"), SWEEP)
    (tmp_path / "link").symlink_to(paths.root)
    preflight.check(Paths(tmp_path / "link"), SWEEP)


def _replace_by_link(path: Path) -> None:
    if path.exists():
        path.rmdir()
    path.symlink_to("/")


HARM: dict[str, Callable[[Paths], None]] = {
    "must be a folder under its root, got a symbolic link to /": lambda paths: _replace_by_link(
        paths.artifacts
    ),
    f"{SWEEP}-0: must be a folder under": lambda paths: _replace_by_link(
        paths.trial_checkpoints(SWEEP, f"{SWEEP}-0")
    ),
    "must not be writable by other users, got mode 777": lambda paths: paths.root.chmod(0o777),
    "must be a file readable by its owner alone, got mode 644": lambda paths: paths.token.chmod(0o644),
}


@pytest.mark.parametrize("message", HARM)
def test_a_path_that_others_could_change_is_refused(paths: Paths, message: str) -> None:
    HARM[message](paths)
    with pytest.raises(BadInput) as refusal:
        preflight.check(paths, SWEEP)
    assert message in str(refusal.value)


def test_another_users_root_is_refused(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """The superuser gives the folder away; any other user pretends to be a third one."""
    if os.geteuid() == 0:
        os.chown(paths.root, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(BadInput, match="the folder of user"):
        preflight.check(paths)
