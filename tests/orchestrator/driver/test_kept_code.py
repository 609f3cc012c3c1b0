"""What a sweep with code of its own ran is kept, without secrets, and runs elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.config.trainable import Trainable
from orchestrator.driver import kept_code
from orchestrator.driver.kept_code import keep
from orchestrator.export.folder import export_saved
from tests import sweeps
from trainables import checkpoint
from trainables.trial import Clock, ScriptSettings

SECRET = "abcdef-0123456789-secret"
SCRIPT = """
import json, sys
import sweep_client
import beside

def train(trial):
    for step in range(trial.start, trial.steps):
        trial.report(step + 1, {"val/loss": trial.params["rate"] * beside.FACTOR, "seed": trial.seed})

if __name__ == "__main__":
    assert sys.argv[1:] == ["--rate=0.5", "--amp"], sys.argv
    train(sweep_client.trial())
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository of git with a script, whose later changes are not committed."""
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)
    folder = tmp_path / "code"
    folder.mkdir()
    files = {"train.py": SCRIPT, "beside.py": "FACTOR = 1", "config.json": "{}", ".env": f"A={SECRET}"}
    for name, text in files.items():
        (folder / name).write_text(text)

    def git(*words: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(folder), *own, *words], check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    (folder / "beside.py").write_text(f"FACTOR = 2  # {SECRET}\n")
    (folder / ".env").write_text(f"B={SECRET}")
    (folder / "new.py").write_text("NEW = 1")
    (folder / "notes.txt").write_text("neither tracked nor named")
    return folder


def entries_of(archive: Path) -> dict[str, str]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name).decode() for name in opened.namelist()}


def test_the_files_the_changes_the_packages_and_the_command_line_are_kept(
    place: Path, tmp_path: Path
) -> None:
    words = (sys.executable, "train.py", "{args}")
    archive = keep(Trainable("command", words, str(place)), tmp_path / "kept")
    entries = entries_of(archive)
    code = {"train.py", "beside.py", "config.json", "new.py"}
    assert entries.keys() == {f"code/{name}" for name in code} | {"changes.patch", "packages.txt", "ran.json"}
    assert "-FACTOR = 1\n" in entries["changes.patch"]
    assert "+FACTOR = 2" in entries["changes.patch"]
    assert f"numpy=={np.__version__}" in entries["packages.txt"].splitlines()
    ran = json.loads(entries["ran.json"])
    assert ran["commit"].endswith("+changes")
    assert ran["interpreter"] == sys.executable
    assert ran["trainable"]["command"] == list(words)
    assert ran["command"]
    digest = hashlib.sha256((place / "train.py").read_bytes()).hexdigest()
    size = (place / "train.py").stat().st_size
    assert ran["files"]["train.py"] == {"sha256": digest, "bytes": size, "copied": True, "redacted": False}
    assert ran["files"]["beside.py"]["redacted"]


def test_no_secret_is_kept(place: Path, tmp_path: Path) -> None:
    archive = keep(Trainable("function", "train.py:train", str(place)), tmp_path / "kept")
    assert not [name for name, text in entries_of(archive).items() if SECRET in text]
    assert "FACTOR = 2  # ***" in entries_of(archive)["code/beside.py"]


def test_files_are_bounded(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_code, "LARGEST_FILE", 20)
    archive = keep(Trainable("function", "train.py:train", str(place)), tmp_path / "kept")
    files = json.loads(entries_of(archive)["ran.json"])["files"]
    assert {name for name, known in files.items() if known["copied"]} == {"config.json", "new.py"}
    assert len(files["train.py"]["sha256"]) == 64


def test_outside_git_and_without_programs_the_code_is_kept(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("exit 0")
    trainable = Trainable("command", ("sh", "run.sh"), str(tmp_path))
    entries = entries_of(keep(trainable, tmp_path / "all"))
    assert entries["code/run.sh"] == "exit 0"
    assert entries["changes.patch"] == ""
    assert entries["packages.txt"].startswith("# The command starts no Python interpreter")
    assert entries_of(keep(trainable, tmp_path / "quick", programs=False)).keys() == {
        "code/run.sh",
        "ran.json",
    }


@pytest.mark.parametrize("kind", ["function", "command"])
def test_an_export_runs_elsewhere(place: Path, tmp_path: Path, kind: str) -> None:
    words = ("/nowhere/bin/python", "train.py", "--rate={rate}", "{?amp: --amp}")
    target = "train.py:train" if kind == "function" else words
    code = keep(Trainable("function", "train.py:train", str(place)), tmp_path / "kept")
    settings = ScriptSettings(
        function=target if isinstance(target, str) else None,
        command=target if isinstance(target, tuple) else None,
        shell=False,
        folder=str(place),
        params={"rate": 0.5, "amp": True},
        training=Clock(3, 1),
        seed=7,
    )
    facts = {"trial": sweeps.trial(0).key, "step": 3, "metrics": {}, "resumable": False}
    saved = checkpoint.save(tmp_path / "step", {}, facts)
    row = replace(
        sweeps.checkpoint(replace(sweeps.trial(0), best_step=3), str(saved.folder)), digest=saved.digest
    )
    export_saved(sweeps.trial(0), row, saved.folder, tmp_path / "exported", code, settings)
    shutil.rmtree(place)
    moved = (tmp_path / "exported").rename(tmp_path / "moved elsewhere")
    environment = {"PATH": os.environ["PATH"], "PYTHON": sys.executable}
    done = subprocess.run(
        [str(moved / "run.sh")], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["step"], line["metrics"]) for line in lines] == [
        (step, {"val/loss": 1.0, "seed": 7}) for step in (1, 2, 3)
    ]
