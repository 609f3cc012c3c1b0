"""A draft from the options of a script is a valid file, whose command the script accepts."""

from __future__ import annotations

import argparse
import ast
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.cli.app import run_command
from orchestrator.config import load
from orchestrator.config.imports.argparse_draft import draft
from orchestrator.config.imports.script_findings import metrics_in
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import BadInput
from orchestrator.scripts.metric_sources import PrintedMetrics
from orchestrator.scripts.script_process import AttemptFolder, command_of
from tests.orchestrator.scripts.test_script_attempt import Runs
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


@pytest.mark.slow
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
        "# Not searched: --use-norm (type=bool reads every word as true, even False).",
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


def drafted(folder: Path, source: str, name: str = "train.py") -> tuple[str, SweepConfig]:
    text = draft(source, name, folder)
    file = folder / "draft.yaml"
    file.write_text(text)
    return text, load(file, profile=None, gpus=0)


def words_of(sweep: SweepConfig) -> list[str]:
    settings = sweep.settings(sweep.largest(), seed=7)
    assert isinstance(settings, ScriptSettings)
    return command_of(settings, AttemptFolder(Path("/t")), 0)


CLICK = """
import click

@click.command()
@click.argument("data", default="digits")
@click.option("-l", "--learning-rate", default=1e-3, show_default=True)
@click.option("--width", type=int, default=64)
@click.option("--optimizer", type=click.Choice(["sgd", "adam"]), default="sgd")
@click.option("--amp/--no-amp", default=False)
@click.option("--debug", is_flag=True)
@click.option("--tag", multiple=True)
@click.option("--seed", type=int, default=0)
@click.option("--epochs", default=5)
def main(**options):
    for epoch in range(options["epochs"]):
        print(f"[epoch {epoch + 1}/5] train_loss={0.5:.3f}, val_loss={1 / (epoch + 1):.4f}.")
"""


def test_options_of_click_are_searched(tmp_path: Path) -> None:
    text, sweep = drafted(tmp_path, CLICK)
    assert set(sweep.search) == {"learning_rate", "width", "optimizer"}
    expected = [
        "--learning-rate",
        "0.01",
        "--width",
        "256",
        "--optimizer",
        "sgd",
        "--seed",
        "7",
        "--epochs",
        "5",
    ]
    assert words_of(sweep) == ["python", "train.py", *expected]
    assert sweep.training.steps == 5
    assert "# Guessed: minimize val_loss, which line 16 of train.py prints." in text


def test_several_commands_of_click_are_refused() -> None:
    with pytest.raises(BadInput, match="several commands"):
        draft(
            CLICK + "\n@click.command()\n@click.option('--a', default=1.0)\ndef other(a): ...\n", "train.py"
        )


def test_printed_metrics_become_patterns_that_match_the_prints(tmp_path: Path) -> None:
    _, sweep = drafted(tmp_path, CLICK)
    assert sweep.trainable is not None
    found = PrintedMetrics(sweep.trainable.metrics, sweep.objective_metrics, 1)
    found.print(
        "[epoch 1/5] train_loss=0.500, val_loss=1.0000.\n[epoch 2/5] train_loss=0.500, val_loss=0.5000."
    )
    lines = [json.loads(line) for line in found.reports(ended=True)]
    assert lines == [
        {"step": 1, "metrics": {"val_loss": 1.0}},
        {"step": 2, "metrics": {"val_loss": 0.5}},
    ]


@pytest.mark.parametrize(
    ("line", "objective", "direction", "printed"),
    [
        ("trial.report(epoch, {'train/loss': a, 'val/accuracy': b})", "val/accuracy", "maximize", None),
        ("print(f'Epoch: {e} Test acc: {a} ({b}%)')", "Test_acc", "maximize", "Epoch: 3 Test acc: 0.5 (1%)"),
        ("logging.info(f'{e} rmse {a:.2f}')", "rmse", "minimize", "3 rmse 0.50"),
        ("log.info(f'step={e} eval/f1={a}')", "eval/f1", "maximize", "step=3 eval/f1=0.5"),
    ],
)  # fmt: skip
def test_the_metric_that_judges_a_model_is_guessed(
    line: str, objective: str, direction: str, printed: str | None
) -> None:
    found = metrics_in(ast.parse(f"print(f'lr {{x}}')\n{line}"))
    assert found is not None
    assert (found.objective, found.direction, found.line) == (objective, direction, 2)
    if printed is not None:
        source = PrintedMetrics(found.source, [objective], 1)
        source.print(printed)
        (report,) = (json.loads(one) for one in source.reports(ended=True))
        assert report == {"step": 3 if "step" in found.source else 1, "metrics": {objective: 0.5}}


def test_metrics_that_a_script_logs_with_mlflow_are_those_of_the_draft(tmp_path: Path) -> None:
    logs = '        mlflow.log_metrics({"train/loss": 1, "val/accuracy": 2}, step=epoch)\n'
    text, sweep = drafted(tmp_path, CLICK + logs)
    assert sweep.trainable is not None
    assert sweep.trainable.metrics == {"source": "mlflow"}
    assert sweep.objective_metrics == ("val/accuracy",)
    assert "# Guessed: maximize val/accuracy, which line 1" in text
    assert "of train.py logs with MLflow." in text
    found = metrics_in(ast.parse("mlflow.log_metric('val/loss', 1, 3)"))
    assert found is not None
    assert (found.objective, found.source) == ("val/loss", {"source": "mlflow"})
    assert metrics_in(ast.parse("mlflow.log_metric('val/loss', 1)")) is None, "all would be at step 0"


HYDRA = """
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    print(f"val_loss={cfg.optimizer.lr}")
"""
CONF = """
defaults: [model: small]
seed: 1
data: ???
optimizer: {name: adam, lr: 0.001, momentum: 0.9}
trainer: {epochs: 12, width: 64}
hydra: {run: {dir: x}}
"""


def test_values_of_hydra_are_searched(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(CONF)
    text, sweep = drafted(tmp_path, HYDRA)
    assert set(sweep.search) == {"optimizer.lr", "optimizer.momentum", "trainer.width"}
    assert words_of(sweep) == [
        "python",
        "train.py",
        "hydra.run.dir=/t/scratch",
        "seed=7",
        "data=<data>",
        "optimizer.lr=0.01",
        "optimizer.momentum=1.0",
        "trainer.epochs=12",
        "trainer.width=256",
    ]
    assert sweep.training.steps == 12
    assert "# Values of config.yaml, which Hydra reads. The groups of its `defaults` were not read." in text
    assert "# Replace <data>: the script does not run without it." in text


def test_init_writes_a_file_that_runs_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', type=float, default=0.1)\n"
        "parser.add_argument('--epochs', type=int, default=3)\noptions = parser.parse_args()\n"
        "for epoch in range(options.epochs):\n    loss = options.lr / (epoch + 1)\n"
        "    print(f'epoch {epoch + 1}: val_loss={loss}')\n"
    )
    assert run_command(["init", "--script", str(script)]) == 0
    output = capsys.readouterr().out
    assert "Guessed: minimize val_loss, which line 8 of train.py prints." in output
    assert "train.yaml is written" in output
    sweep = load(tmp_path / "train.yaml", profile=None, gpus=0)
    runs = Runs(tmp_path)
    settings = sweep.settings({"lr": 0.5}, seed=1)
    assigned = replace(runs.command("", steps=3), settings=settings, observed=("val_loss",))
    outcomes = runs.all(assigned)
    assert [(one.step, one.metrics["val_loss"]) for one in outcomes] == [
        (step, pytest.approx(0.5 / step)) for step in (1, 2, 3)
    ]
    assert run_command(["init", "--script", str(script)]) == 2, "a file is not overwritten"
    capsys.readouterr()
    assert run_command(["init", "--script", str(tmp_path / "missing.py")]) == 2
    assert "must be a Python script" in capsys.readouterr().err
    assert run_command(["init", "copy", "--script", str(script)]) == 2
