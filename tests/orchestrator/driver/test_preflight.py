"""A sweep writes where it says, and only where nobody else can."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.driver import preflight as place
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


def test_an_ordinary_root_is_taken(paths: Paths, tmp_path: Path) -> None:
    """So is one that is not there yet, and a link to a larger disk."""
    place.check(paths, SWEEP)
    place.check(Paths(tmp_path / "nowhere"), SWEEP)
    (tmp_path / "link").symlink_to(paths.root)
    place.check(Paths(tmp_path / "link"), SWEEP)


def _lead_elsewhere(path: Path) -> None:
    if path.exists():
        path.rmdir()
    path.symlink_to("/")


HARM: dict[str, Callable[[Paths], None]] = {
    "must be a folder under its root, got a symbolic link to /": lambda paths: _lead_elsewhere(
        paths.artifacts
    ),
    f"{SWEEP}-0: must be a folder under": lambda paths: _lead_elsewhere(
        paths.trial_checkpoints(SWEEP, f"{SWEEP}-0")
    ),
    "must not be writable for everybody, got mode 777": lambda paths: paths.root.chmod(0o777),
    "must be a file for its owner's eyes only, got mode 644": lambda paths: paths.token.chmod(0o644),
}


@pytest.mark.parametrize("said", HARM)
def test_what_others_could_change_is_refused(paths: Paths, said: str) -> None:
    HARM[said](paths)
    with pytest.raises(BadInput) as refusal:
        place.check(paths, SWEEP)
    assert said in str(refusal.value)


def test_another_users_root_is_refused(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root gives the folder away; whoever cannot becomes somebody else."""
    if os.geteuid() == 0:
        os.chown(paths.root, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(BadInput, match="the folder of user"):
        place.check(paths)
