"""A draft from the options of a script is a valid file, whose command the script accepts."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.cli.app import run_command
from orchestrator.config import load
from orchestrator.config.argparse_draft import draft
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import BadInput
from orchestrator.scripts.script_process import AttemptFolder, command_of
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


WORDS = st.text(max_size=6) | st.sampled_from(["on", "null", "1e3", "-1", "--x", "", "{a}", "2024-01-01"])
NUMBERS = st.integers(-(2**70), 2**70) | st.integers(-3, 40) | st.floats() | st.sampled_from([-0.0, 1e308])
LITERALS = st.none() | st.booleans() | NUMBERS | WORDS
KEYWORDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["int", "float", "str", "bool", "str2bool", "lambda text: text"]),
        "default": LITERALS.map(repr),
        "choices": st.lists(LITERALS, max_size=4).map(repr)
        | st.sampled_from(["range(4)", "{1, 2}", "CHOICES"]),
        "action": st.sampled_from(["'store_true'", "argparse.BooleanOptionalAction"]),
        "required": st.just("True"),
        "nargs": st.sampled_from(["'+'", "'?'", "2"]),
    },
)
FLAGS = st.sampled_from(
    ["--lr", "-l", "--LR", "--use-norm", "--epochs", "--seed", "data", "--a.b", "--{x}", "--é"]
)


@settings(deadline=None)
@given(st.lists(st.tuples(FLAGS | WORDS, KEYWORDS), max_size=5))
@example([("--use-norm", {"type": "bool", "choices": "[True, False]"})])
@example([("--precision", {"choices": "[16, 32, 'bf16', 'fp8']"}), ("--a", {"choices": "[None, 'x', 'y']"})])
@example(
    [
        ("--a\n\rtask: x", {"type": "int", "default": "1e999"}),
        ("--lr", {"type": "float", "default": "5e-324"}),
    ]
)
@example([("--level", {"type": "int", "choices": "[-1, 1]"}), ("-x", {"type": "int", "choices": "[-1, 1]"})])
def test_every_draft_is_valid_and_means_what_the_script_reads(arguments: list[Any]) -> None:
    calls = "\n".join(
        f"parser.add_argument({', '.join([repr(flag), *(f'{key}={text}' for key, text in words.items())])})"
        for flag, words in arguments
    )
    source = f'{calls}\nparser.add_argument("--width", type=int, default=8)'
    with TemporaryDirectory() as folder:
        file = Path(folder, "draft.yaml")
        file.write_text(draft(source, "train.py"), encoding="utf-8")
        sweep = load(file, profile=None, gpus=0)
        for lowest in ((), tuple(sweep.search)):
            drawn = sweep.settings(sweep.largest(lowest), seed=7)
            assert isinstance(drawn, ScriptSettings)
            words = command_of(drawn, AttemptFolder(Path(folder)), 0)
            parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
            known = {"argparse": argparse, "parser": parser, "str2bool": str, "CHOICES": [1, 2]}
            try:
                exec(source, known)
                parser.parse_args([])
            except (Exception, SystemExit):  # noqa: BLE001 - whatever argparse makes of a wrong declaration
                return
            read = vars(parser.parse_args(words[2:]))
            assert {name: read[name] for name in sweep.search} == dict(drawn.params)


def test_a_draft_says_why_an_option_is_left_out() -> None:
    text = draft(
        "parser.add_argument('--use-norm', type=bool, default=True, choices=[True, False])\n"
        "parser.add_argument('--level', type=int, default=2, choices=range(4))\n"
        "parser.add_argument('--precision', choices=[16, 32, 'bf16'])\n"
        "parser.add_argument('--flag', type=str2bool, choices=[True, False])\n"
        "parser.add_argument('--mode', choices=[None, 'light', 'strong'])\n",
        "train.py",
    )
    for line in (
        "# Not searched: --use-norm (type=bool takes every word for true, also False).",
        "# Not searched: --level (its choices are not written out).",
        "# Not searched: --precision (fewer than two of its choices can be given as words of a command).",
        "# Not searched: --flag (what str2bool makes of a word is not known).",
        '  mode: {choice: ["light", "strong"]}',
    ):
        assert line in text.splitlines()


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
    words = command_of(settings, AttemptFolder(tmp_path), 0)
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
        ("parser.add_subparsers()", "has subparsers, which a draft cannot describe"),
        ("print(1)", "must have an option with a number as its default"),
        ("parser.add_argument('--name', type=str, default='x')", r"with choices \(got --name\)"),
        ("parser.add_argument('--lr', type=float, default=1e999)", r"with choices \(got --lr\)"),
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
