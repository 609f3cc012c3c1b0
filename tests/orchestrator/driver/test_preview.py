"""The preview of a trainable before it is started."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from orchestrator.config.trainable import Trainable
from orchestrator.driver.preview import runs

SPACE = """
trainable: {function: train.py:train}
search: {alpha: {log_uniform: [1e-6, 1e-1]}}
training: {steps: 20, interval: 1}
objective: {maximize: val/accuracy}
budget: {trials: 16}
"""
MODEL = """
from trainables.program import Linen

class Net(Linen):
    def data(self, folder): ...
    def predict(self, state, batch): ...
"""


def test_a_command_is_shown_as_it_is_run(tmp_path: Path) -> None:
    words = ("sh", "train it.sh", "--rate", "{rate:.3f}", "--seed={seed}", "{{x}}")
    assert runs(Trainable("command", words, str(tmp_path)), ["rate", "layers"]) == [
        "sh 'train it.sh' --rate {rate:.3f} --seed={seed} {{x}}",
        "without a shell: each word is one argument",
        f"program: {shutil.which('sh')}",
        "placeholders of hyperparameters: {rate}",
        "placeholders of the trial: {seed}",
        "only in the file SWEEP_PARAMS and in variables SWEEP_PARAM_...: layers",
        f"in {tmp_path}",
    ]


def test_a_shell_is_named(tmp_path: Path) -> None:
    lines = runs(Trainable("command", ("make it | tee {folder}/log",), str(tmp_path), shell=True), [])
    assert lines[0] == "/bin/sh -c 'make it | tee {folder}/log'"
    assert lines[1].startswith("by a shell")


SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--amp", type=bool, default=False)
parser.add_argument("--learning-rate", type=float, default=0.1)
parser.add_argument("--flag", action="store_true")
"""
OF_BOOL = 'warning: --amp has type=bool, which reads "False" as true: write "{?amp: --amp=True}"'
OF_DASH = (
    "warning: the script has --learning-rate, not --learning_rate: write --learning-rate={learning_rate}"
)


@pytest.mark.parametrize(
    ("words", "warnings"),
    [
        (["{args}"], [OF_BOOL, OF_DASH]),
        (["--amp={amp}"], [OF_BOOL]),
        (["--amp", "{amp}", "--learning_rate", "{learning_rate:.3f}"], [OF_BOOL, OF_DASH]),
        (["{?amp: --amp=True}", "--learning-rate={learning_rate}"], []),
    ],
)
def test_a_value_that_a_script_reads_otherwise_is_warned_of(
    tmp_path: Path, words: list[str], warnings: list[str]
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    trainable = Trainable("command", ("python", "train.py", *words), str(tmp_path))
    shown = runs(trainable, ["amp", "learning_rate"])
    assert [line for line in shown if line.startswith("warning")] == warnings


def test_nothing_is_warned_of_a_script_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def (")
    words = ("python", "train.py", "{args}")
    shown = runs(Trainable("command", words, str(tmp_path)), ["amp"])
    assert shown[-1] == f"in {tmp_path}"
    assert "{args} stands for --amp=..." in shown


def test_a_command_can_be_run_by_hand_as_it_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my code"
    folder.mkdir()
    (folder / "train.py").write_text(
        "import sweep_client, sys\ntrial = sweep_client.trial(rest=None, rate=None)\n"
        "print(sys.argv[1:], trial.params, trial.seed, trial.steps, trial.interval, trial.folder)\n"
    )
    (folder / "digits.yaml").write_text(
        f"trainable: {{command: [{sys.executable}, train.py, '--rate={{rate}}', '{{folder}}', "
        "'{?amp: --amp}']}\n"
        'search: {rate: {uniform: [0.25, 0.5]}, rest: {choice: ["it\'s"]}, amp: {choice: [true]}}\n'
        "training: {steps: 20, interval: 5}\nobjective: {minimize: val/loss}\nbudget: {trials: 1}\n"
    )
    words = ["validate", str(folder / "digits.yaml"), "--root", str(tmp_path / "mlruns")]
    assert run_command(words) == 0
    shown = capsys.readouterr().out
    (line,) = (line for line in shown.splitlines() if "by hand: " in line)
    done = subprocess.run(
        ["/bin/sh", "-c", line.partition("by hand: ")[2]],
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = "['--rate=0.5', '.', '--amp'] {'rest': \"it's\", 'rate': 0.5} SEED 20 5 ."
    seed = re.search(r"SWEEP_SEED=(\d+)", line)
    assert seed is not None
    assert done.stdout.strip() == expected.replace("SEED", seed[1])


def test_a_program_beside_the_file_and_one_of_another_machine(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("#!/bin/sh\n")
    (tmp_path / "run").chmod(0o755)
    for word, shown in (
        ("./run", f"{tmp_path}/run"),
        ("no-such", "looked for on the machine that runs the trial"),
    ):
        assert f"program: {shown}" in runs(Trainable("command", (word,), str(tmp_path)), [])


def test_a_function_is_shown_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\n\ndef train(trial): ...\n")
    lines = runs(Trainable("function", "train.py:train", str(tmp_path)), ["rate"])
    assert lines == [
        f"train(trial) of {tmp_path}/train.py, line 3",
        f"in a process of its own: {sys.executable}",
        f"in {tmp_path}",
    ]
    assert runs(Trainable("function", "math:sqrt", str(tmp_path)), [])[0].startswith("sqrt(trial) of ")


def test_a_program_is_shown_with_what_it_defines(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    lines = runs(Trainable("program", "model.py:Net", str(tmp_path), free=("rate",)), ["rate", "width"])
    assert lines == [
        f"class Net(Linen) of {tmp_path}/model.py, line 4, in the slots of an engine",
        "functions that it defines: data, predict",
        "traced numbers, of which another value compiles nothing: rate",
        "arguments of __init__, of which another value is another program: width",
        f"in {tmp_path}",
    ]


def test_validate_prints_what_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("def train(trial): ...\n")
    file = tmp_path / "digits.yaml"
    file.write_text(SPACE)
    words = ["validate", str(file), "--root", str(tmp_path / "mlruns")]
    assert run_command(words) == 0
    shown = capsys.readouterr().out
    assert f"\nruns: train(trial) of {tmp_path}/train.py, line 1\n  in a process of its own: " in shown
    assert f"\n  in {tmp_path}\n" in shown
    assert "size:" not in shown, "a trainable has no network of this package"
    assert run_command([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["runs"][-1] == f"in {tmp_path}"
    assert document["networks"] is None
