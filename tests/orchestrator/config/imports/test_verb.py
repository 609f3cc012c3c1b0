"""The verb `import` as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command

WANDB = "program: train.py\nmethod: random\nrun_cap: 4\nparameters: {lr: {min: 0.1, max: 1.0}}\n"


def test_without_an_output_the_file_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Notes go to standard error, so that standard output is a file."""
    (tmp_path / "w.yaml").write_text(f"{WANDB}project: digits\n")
    assert run_command(["import", str(tmp_path / "w.yaml")]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == "# Translated from the W&B sweep w.yaml."
    assert "budget: {trials: 4}" in printed.out
    assert printed.err.startswith("Not translated: ")


def test_no_file_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w.yaml").write_text(WANDB)
    for name in ("s.yaml", "s-known.csv"):
        (tmp_path / name).write_text("mine")
        assert run_command(["import", str(tmp_path / "w.yaml"), "--output", str(tmp_path / "s.yaml")]) == 2
        assert f"{name} already exists" in capsys.readouterr().err
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()
    assert not (tmp_path / "s.yaml").exists()


def test_a_file_that_could_not_be_run_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.yaml").write_text(WANDB)
    assert run_command(["import", str(tmp_path / "w.yaml"), "--output", str(tmp_path / "a b.yaml")]) == 2
    assert "the file's name must be letters, digits, - and _" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["w.yaml"]


@pytest.mark.parametrize(
    ("words", "must"),
    [
        (["missing.yaml"], "missing.yaml does not exist"),
        (
            ["w.yaml", "lr=interval(0, 1)"],
            "OVERRIDE must be left out unless the source is a configuration of Hydra",
        ),
        (["w.yaml", "--study", "a"], "--study must be left out unless the source is a storage of Optuna"),
        (["w.yaml", "--minimize", "a"], "--minimize and --maximize must be left out unless"),
        (["train.py"], "Use `sweep init --script train.py`"),
        (["pipe"], "must be a regular file"),
        (["zeros"], "must be"),
    ],
)
def test_words_that_do_not_suit_the_source(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    must: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.yaml").write_text(WANDB)
    (tmp_path / "train.py").write_text("parser.add_argument('--lr', type=float, default=0.1)")
    (tmp_path / "zeros").write_bytes(bytes(10_000))
    os.mkfifo(tmp_path / "pipe")
    assert run_command(["import", *words]) == 2
    assert must in capsys.readouterr().err


def test_files_of_other_tools_need_no_optuna(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(WANDB)
    code = (
        "import sys; from orchestrator.cli.app import run_command;"
        f"run_command(['import', {str(tmp_path / 'w.yaml')!r}]);"
        "print({'optuna', 'ray', 'jax', 'mlflow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
