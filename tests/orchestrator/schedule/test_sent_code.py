"""The folder of a trainable reaches the workers of a cluster through Ray, and only what they need of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.config.trainable import Trainable
from orchestrator.schedule import sent_code
from tests.shared_ray import own_ray


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Return a folder of code, with files that no trial needs and one that could hide a module."""
    folder = tmp_path / "digits"
    for below in (".git", ".venv", "env/lib", "mlruns", "data"):
        (folder / below).mkdir(parents=True)
        (folder / below / "file").write_text("text")
    (folder / "env" / "pyvenv.cfg").write_text("home = /usr/bin")
    (folder / "queue.py").write_text("raise RuntimeError('not the one of Python')")
    (folder / "helper.py").write_text("def loss(rate): return 3 * rate")
    (folder / "train.py").write_text(
        "from helper import loss\n"
        "def train(trial):\n    trial.report(trial.steps, {'val/loss': loss(trial.params['rate'])})\n"
    )
    return folder


@pytest.mark.ray
@pytest.mark.slow
def test_a_folder_reaches_workers_that_do_not_have_it(code: Path, temporary: Path, tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with own_ray(temporary) as variables:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.programs.sent_code_driver",
                str(temporary),
                str(code),
                str(tmp_path),
            ],
            env={**inherited, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["same code"] == str(code), "a shared disk is used as it is"
    assert "digits" not in seen["queue"]
    assert Path(seen["gone"]).name == "digits"
    assert seen["gone"] != str(code)
    assert seen["files"] == ["data/file", "helper.py", "queue.py", "train.py"]
    assert seen["outcome"] == 6


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("train.py:train", True),
        ("helper:loss", True),
        ("json.decoder:JSONDecoder", False),
        (("./run",), True),
    ],
)
def test_installed_code_is_not_sent(code: Path, target: str | tuple[str, ...], sent: bool) -> None:
    trainable = Trainable("command" if isinstance(target, tuple) else "function", target, str(code))
    assert sent_code.folder_to_send(trainable) == (code if sent else None)
    assert sent_code.folder_to_send(None) is None


def test_what_is_left_out_does_not_count(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code / ".git" / "file").write_bytes(bytes(1 << 20))
    assert 0 < sent_code.size_of(code) < 1 << 20
    (code / "data" / "file").write_bytes(bytes(1 << 20))
    assert sent_code.size_of(code) > 1 << 20
