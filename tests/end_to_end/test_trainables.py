"""Sweeps of functions, commands and programs under a real Ray: stopped, killed, resumed, checked."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from sklearn.datasets import load_digits

from orchestrator.ledger.ledger import Ledger
from tests.end_to_end.commands import ROOT, Commands, finish, wait_for

pytestmark = pytest.mark.end_to_end

FUNCTION = """
import pickle, time
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

def train(trial):
    numbers, classes = load_digits(return_X_y=True)
    model = SGDClassifier(alpha=trial.params["alpha"], random_state=trial.seed)
    if trial.resume is not None:
        model = pickle.loads((trial.resume / "model").read_bytes())
    print("starts at", trial.start)
    for epoch in range(trial.start, trial.steps):
        order = np.random.default_rng([trial.seed, epoch]).permutation(1400)
        model.partial_fit(numbers[order] / 16, classes[order], classes=range(10))
        time.sleep(trial.params.get("pause", 0))
        if (epoch + 1) % trial.interval == 0:
            (trial.folder / "model").write_bytes(pickle.dumps(model))
            metrics = {"val/accuracy": model.score(numbers[1400:] / 16, classes[1400:])}
            if not trial.report(epoch + 1, metrics, checkpoint=trial.folder):
                return
"""
SCRIPT = """
import argparse, json, os, random, time
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0)
options = parser.parse_args()
import sweep_client
trial = sweep_client.trial(lr=options.lr)
value = 1.0 if trial.resume is None else json.loads((trial.resume / "value.json").read_text())
for step in range(trial.start + 1, trial.steps + 1):
    value *= 1 - options.lr * random.Random(f"{trial.seed}/{step}").random()
    time.sleep(options.pause)
    (trial.folder / "value.json").write_text(json.dumps(value))
    if not trial.report(step, {"val/loss": value}, checkpoint=trial.folder):
        break
"""
REST = "budget: {trials: 3}\nsampler: {random: {seed: 1}}\n"
FUNCTION_FILE = """
trainable: {function: train.py:train}
search: {alpha: {log_uniform: [1e-5, 1]}, pause: {choice: [PAUSE]}}
training: {steps: 8, interval: 1}
objective: {maximize: val/accuracy}
"""
COMMAND_FILE = f"""
trainable: {{command: [{sys.executable}, train.py, --lr, "{{lr}}", --pause, "{{pause}}"]}}
search: {{lr: {{log_uniform: [1e-3, 0.5]}}, pause: {{choice: [PAUSE]}}}}
training: {{steps: 8, interval: 1}}
objective: {{minimize: val/loss}}
"""
C_FILE = """
trainable: {command: [./train, "{lr}"]}
search: {lr: {log_uniform: [1e-3, 0.5]}, pause: {choice: [PAUSE]}}
training: {steps: 8, interval: 1}
objective: {minimize: val/loss}
"""
PROGRAM_FILE = """
trainable: {program: "model.py:OfNnx"}
search: {learning_rate: {log_uniform: [1e-4, 1e-1]}}
training: {steps: STEPS, interval: 20, reproducible: bits}
objective: {maximize: val/accuracy}
confirm: {seeds: 1}
"""


IN_C = pytest.param("in C", marks=pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"))
FILES = {"function": FUNCTION_FILE, "command": COMMAND_FILE, "in C": C_FILE, "program": PROGRAM_FILE}


def written(folder: Path, kind: str, *, pause: float, scheduler: str = "none") -> str:
    """Write a search-space file and its script; return the file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    text = FILES[kind]
    # A program is slowed down by its length.
    text = text.replace("PAUSE", str(pause)).replace("STEPS", "4000" if pause else "400")
    (folder / "train.py").write_text(FUNCTION if kind == "function" else SCRIPT)
    shutil.copy(ROOT / "tests" / "trainables" / "digits.py", folder / "model.py")
    if kind == "in C":
        source = Path(__file__).with_name("walk.c")
        options = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O1"]
        subprocess.run(["cc", *options, str(source), "-o", str(folder / "train")], check=True)
    file = folder / "digits.yaml"
    file.write_text(f"{text}{REST}scheduler: {scheduler}\n")
    return str(file)


def curves(ledger: Ledger) -> dict[tuple[int, int], dict[str, float]]:
    """Return the metrics of the only sweep by trial and step, without times."""
    (sweep,) = ledger.sweeps()
    return {
        (trial.number, report.step): {
            name: value for name, value in report.metrics.items() if name.startswith(("val/", "train/"))
        }
        for trial in ledger.trials(sweep.id, "search")
        for report in ledger.reports(sweep.id)
        if report.trial_key == trial.key
    }


def scripts(folder: Path) -> list[psutil.Process]:
    """Return the living processes that run a script of a folder."""
    return [one for one in psutil.process_iter() if str(folder) in " ".join(_words(one))]


def _words(one: psutil.Process) -> list[str]:
    try:
        return [one.cwd(), *one.cmdline()] if "train" in "".join(one.cmdline()) else []
    except psutil.Error:
        return []


def test_a_function_is_swept_stopped_early_and_checked(commands: Commands) -> None:
    file = written(commands.folder / "own", "function", pause=0, scheduler="{asha: {reduction: 2}}")
    code, printed = commands.run(file)
    assert code == 0, printed
    (sweep,) = commands.ledger.sweeps()
    trials = commands.ledger.trials(sweep.id)
    assert {trial.state for trial in trials} == {"COMPLETE", "PRUNED"}
    best = max(trials, key=lambda trial: trial.value or 0)
    code, printed = commands.run("logs", best.key)
    assert "starts at 0" in printed
    code, printed = commands.run("evaluate", best.key)
    assert code == 2
    assert "must train a network of this package" in printed
    exported = commands.folder / "exported"
    code, printed = commands.run("export", best.key, "--to", str(exported))
    assert code == 0, printed
    model = pickle.loads((exported / "checkpoint" / "model").read_bytes())
    numbers, classes = load_digits(return_X_y=True)
    assert model.score(numbers[1400:] / 16, classes[1400:]) == best.value
    assert json.loads((exported / "trial.json").read_text())["params"] == dict(best.params)
    code, printed = commands.run("check")
    assert code == 0, printed
    assert not scripts(commands.folder / "own")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["command", IN_C, "program"])
def test_others_are_stopped_early_too(commands: Commands, kind: str) -> None:
    scheduler = "{asha: {reduction: 2}}"
    file = written(commands.folder / "own", kind, pause=0, scheduler=scheduler)
    code, printed = commands.run(file, "--set", "budget.trials=6")
    assert code == 0, printed
    (sweep,) = commands.ledger.sweeps()
    assert {trial.state for trial in commands.ledger.trials(sweep.id, "search")} == {"COMPLETE", "PRUNED"}
    code, printed = commands.run("check")
    assert code == 0, printed
    assert not scripts(commands.folder / "own")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["function", "command", IN_C, "program"])
def test_kills_change_no_number(commands: Commands, kind: str) -> None:
    """A killed worker, then a killed driver: every report equals that of an undisturbed sweep."""
    own = commands.folder / "own"
    pause = 0.3
    calm = commands.folder / "calm"
    code, printed = commands.run(written(own, kind, pause=pause), SWEEP_ROOT=str(calm))
    assert code == 0, printed
    expected = curves(Ledger.open(f"sqlite:///{calm}/sweeps.db"))

    def reports() -> int:
        known = (commands.root / "sweeps.db").exists() and commands.ledger.sweeps()
        return len(commands.ledger.reports(known[0].id)) if known else 0

    file = written(own, kind, pause=pause)
    driver = commands.start(file)
    wait_for(lambda: reports() >= 3)
    commands.titled("ray::Worker")[0].kill()
    wait_for(lambda: reports() >= 7)
    os.kill(driver.pid, signal.SIGKILL)
    finish(driver)
    assert not commands.wait_until_gone(30)
    wait_for(lambda: not scripts(own), 20)
    code, printed = commands.run(file)
    assert code == 0, printed
    assert "Resuming" in printed
    assert curves(commands.ledger) == expected
    code, printed = commands.run("check")
    assert code == 0, printed
