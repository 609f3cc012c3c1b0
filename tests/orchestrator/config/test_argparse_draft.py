"""A draft from the options of a script is a valid file, whose command the script accepts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run_command
from orchestrator.config import load
from orchestrator.config.argparse_draft import draft
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import BadInput
from orchestrator.scripts.process import Place, command_of
from trainables.trial import ScriptSettings

OPTIONS = """
parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--learning-rate", "-l", type=float, default=1e-3, help="rate")
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--decay", type=float, default=0.0)
parser.add_argument("--width", type=int, default=128)
model = parser.add_argument_group("model")
model.add_argument("--depth", type=int, default=3)
model.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
parser.add_argument("--threshold", type=float, default=-1.0)
parser.add_argument("--verbose", action="store_true")
parser.add_argument("--sizes", type=int, nargs="+", default=[1])
parser.add_argument("--device", default=str(1))
parser.add_argument("--out", required=True)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--seed", type=int, default=1)
"""
SCRIPT = f"import argparse, not_installed\n{OPTIONS}"


def loaded(folder: Path) -> SweepConfig:
    file = folder / "draft.yaml"
    file.write_text(draft(SCRIPT, "train.py"))
    return load(file, profile=None, gpus=0)


def test_ranges_are_around_the_defaults(tmp_path: Path) -> None:
    text = draft(SCRIPT, "train.py")
    for line in (
        "learning_rate: {log_uniform: [0.0001, 0.01]}",
        "momentum: {uniform: [0, 1]}",
        "decay: {uniform: [0, 1]}",
        "width: {log_int: [32, 512]}",
        "depth: {int: [1, 6]}",
        'optimizer: {choice: ["sgd", "adam"]}',
        "# Left at their defaults: --threshold, --verbose, --sizes, --device.",
        "# Replace <data>: the script does not run without it.",
        "# Replace <out>: the script does not run without it.",
    ):
        assert line in text
    sweep = loaded(tmp_path)
    assert set(sweep.search) == {"learning_rate", "momentum", "decay", "width", "depth", "optimizer"}
    assert sweep.training.steps == 20


def test_a_draft_says_that_the_script_reports_nothing_yet() -> None:
    """A sweep of it would train every trial, and then fail it."""
    silent = 'trial.report(epoch, {"val/loss": loss})'
    assert silent in draft(SCRIPT, "train.py")
    for source in ("import sweep_client", "reports = os.environ['SWEEP_REPORTS']"):
        assert silent not in draft(f"{source}\n{SCRIPT}", "train.py")


def test_the_script_accepts_the_command(tmp_path: Path) -> None:
    sweep = loaded(tmp_path)
    settings = sweep.settings(sweep.largest(), seed=7)
    assert isinstance(settings, ScriptSettings)
    words = command_of(settings, Place(tmp_path), 0)
    assert words[:2] == ["python", "train.py"]
    known: dict[str, Any] = {"argparse": argparse}
    exec(OPTIONS, known)
    options = known["parser"].parse_args(words[2:])
    assert {name: getattr(options, name) for name in sweep.search} == dict(settings.params)
    assert (options.seed, options.epochs, options.data, options.out) == (7, 20, "<data>", "<out>")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def (", "must be a Python script"),
        ("parser.add_subparsers()", "must have one set of options"),
        ("print(1)", "must have an option with a number as its default"),
        ("parser.add_argument('--name', type=str, default='x')", "with choices, got --name"),
        ("parser.add_argument('--lr', type=float, default=1e999)", "with choices, got --lr"),
        ("parser.add_argument(name, type=float, default=1.0)", "got no options"),
    ],
)
def test_what_cannot_be_drafted_is_refused(source: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        draft(source, "train.py")


def test_the_verb_prints_the_draft(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    assert run_command(["import", "--argparse", str(script)]) == 0
    assert capsys.readouterr().out == draft(SCRIPT, "train.py")
    assert run_command(["import", "--argparse", str(tmp_path / "missing.py")]) == 2
    assert "must be a Python script" in capsys.readouterr().err
