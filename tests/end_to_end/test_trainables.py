"""Sweeps of functions, commands and programs under a real Ray: stopped, killed, resumed, checked."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

from orchestrator import Sweep
from orchestrator.ledger.ledger import Ledger
from tests.end_to_end.commands import ROOT, Commands, finish, wait_for
from tests.programs import program

pytestmark = pytest.mark.end_to_end

PAGE = ROOT / "docs" / "trainables.md"
FUNCTION = """
import time
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

STATE = ("classes_", "coef_", "intercept_", "t_")

def train(trial):
    numbers, classes = load_digits(return_X_y=True)
    model = SGDClassifier(alpha=trial.params["alpha"], random_state=trial.seed)
    if trial.resume is not None:
        for name, array in np.load(trial.resume / "model.npz").items():
            setattr(model, name, array)
    print("starts at", trial.start)
    for epoch in range(trial.start, trial.steps):
        order = np.random.default_rng([trial.seed, epoch]).permutation(1400)
        model.partial_fit(numbers[order] / 16, classes[order], classes=range(10))
        time.sleep(trial.params.get("pause", 0))
        if (epoch + 1) % trial.interval == 0:
            np.savez(trial.folder / "model.npz", **{name: getattr(model, name) for name in STATE})
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
PYTHON_WITH_TORCH = os.environ.get("SWEEP_TEST_TORCH", "")
"""A Python interpreter of an environment with PyTorch, which is no dependency of this project."""

TORCH_FILE = f"""
trainable: {{command: [{PYTHON_WITH_TORCH or "python"}, train.py]}}
search: {{lr: {{log_uniform: [1e-3, 1e-2]}}, pause: {{choice: [PAUSE]}}}}
training: {{steps: 8, interval: 1}}
objective: {{minimize: val/loss}}
"""
PROGRAM_FILE = """
trainable: {program: "model.py:OfNnx"}
search: {learning_rate: {log_uniform: [1e-4, 1e-1]}}
training: {steps: STEPS, interval: 20, reproducible: bits}
objective: {maximize: val/accuracy}
confirm: {seeds: 1}
"""
UNAWARE_FILE = f"""
trainable:
  command: [{sys.executable}, watch.py, train.py, --lr, "{{lr}}", --seed, "{{seed}}", --pause, "{{pause}}"]
search: {{lr: {{log_uniform: [1e-3, 0.5]}}, pause: {{choice: [PAUSE]}}}}
training: {{steps: 8, interval: 1}}
objective: {{minimize: val/loss}}
"""
"""Of a script that was not written for this, and the one of the page that reads what it prints."""

SLOTS_FILE = """
trainable: {program: "model.py:OfNnx"}
search: {learning_rate: {log_uniform: [1e-4, 1e-1]}, width: {choice: [24]}}
training: {steps: STEPS, interval: 20, reproducible: bits}
objective: {maximize: val/accuracy}
resources: {gpu: 1/4, cpu: 0.1}
"""
DEVICE = {"SWEEP_HOST_DEVICES": "1"}
"""A processor of this machine in place of a GPU."""


IN_C = pytest.param("in C", marks=pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"))
IN_TORCH = pytest.param(
    "in PyTorch", marks=pytest.mark.skipif(not PYTHON_WITH_TORCH, reason="needs SWEEP_TEST_TORCH")
)
UNAWARE = "not written for this"
SCRIPTS = {
    "function": FUNCTION,
    "in PyTorch": program("torch_command"),
    UNAWARE: Path(__file__).with_name("unaware.py").read_text(),
}
FILES = {
    "in PyTorch": TORCH_FILE,
    "function": FUNCTION_FILE,
    "command": COMMAND_FILE,
    "in C": C_FILE,
    UNAWARE: UNAWARE_FILE,
    "program": PROGRAM_FILE,
    "program in slots": SLOTS_FILE,
}


def written(folder: Path, kind: str, *, pause: float, scheduler: str = "none") -> str:
    """Write a search-space file and its script; return the file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    text = FILES[kind]
    # A program is slowed down by its length.
    text = text.replace("PAUSE", str(pause)).replace("STEPS", "4000" if pause else "400")
    (folder / "train.py").write_text(SCRIPTS.get(kind, SCRIPT))
    shutil.copy(ROOT / "tests" / "trainables" / "digits.py", folder / "model.py")
    if kind == UNAWARE:
        blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        [watch] = [block for block in blocks if "Popen" in block]
        (folder / "watch.py").write_text(watch)
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


def starts(commands: Commands) -> dict[str, int]:
    """Return the step at which each attempt of the only sweep has started, as its worker has logged it."""
    found: dict[str, int] = {}
    (sweep,) = commands.ledger.sweeps()
    for trial in commands.ledger.trials(sweep.id):
        _, text = commands.run("logs", trial.key)
        lines = re.findall(r"attempt (\d+): started at step (\d+) on", text)
        found |= {f"{trial.key}.{number}": int(step) for number, step in lines}
    return found


def check_each_attempt_goes_on(commands: Commands) -> None:
    """Check that no attempt has trained again what an earlier one had reported."""
    (sweep,) = commands.ledger.sweeps()
    reached: dict[str, int] = {}
    for report in commands.ledger.reports(sweep.id):
        reached[report.attempt_id] = max(report.step, reached.get(report.attempt_id, 0))
    started, later = starts(commands), 0
    for trial in commands.ledger.trials(sweep.id, "search"):
        step = 0
        for attempt in commands.ledger.trial_attempts(trial.key):
            if attempt.id in started:  # a worker has begun it
                assert started[attempt.id] == step, attempt
                later += step > 0
            step = reached.get(attempt.id, step)
    assert later >= 2, "a killed worker and a killed driver must each have left something to go on with"


def scripts(folder: Path) -> list[psutil.Process]:
    """Return the living processes that run a script of a folder."""
    return [one for one in psutil.process_iter() if str(folder) in " ".join(_words(one))]


def _words(one: psutil.Process) -> list[str]:
    try:
        return [one.cwd(), *one.cmdline()] if "train" in "".join(one.cmdline()) else []
    except psutil.Error:
        return []


@pytest.mark.slow
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
    assert "cannot be evaluated, because it does not train a program or a built-in model" in printed
    exported = commands.folder / "exported"
    code, printed = commands.run("export", best.key, "--to", str(exported))
    assert code == 0, printed
    model = SGDClassifier()
    for name, array in np.load(exported / "checkpoint" / "model.npz").items():
        setattr(model, name, array)
    numbers, classes = load_digits(return_X_y=True)
    assert model.score(numbers[1400:] / 16, classes[1400:]) == best.value
    assert json.loads((exported / "trial.json").read_text())["params"] == dict(best.params)
    code, printed = commands.run("check")
    assert code == 0, printed
    assert not scripts(commands.folder / "own")


PREDICT = """

class Net(OfNnx):
    def predict(self, state, batch):
        outputs, _ = self.outputs(state["params"], state["rest"], batch, None)
        return {"answer": outputs.argmax(-1), "outputs": outputs}
"""
LOADED = """
import json, sys, mlflow, numpy
model = mlflow.pyfunc.load_model("models:/digits-Net@champion")
answers = model.predict({"inputs": numpy.array(json.loads(sys.argv[1]), numpy.float32)})
print(json.dumps({name: values.tolist() for name, values in answers.items()}))
"""


ASLEEP = """
import time
def train(trial):
    print("asleep", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_functions_that_are_stopped_before_their_first_report_leave_a_sweep_to_resume(
    commands: Commands,
) -> None:
    """Two of them sleep; the others wait for a processor, and are dropped."""
    own = commands.folder / "own"
    file = written(own, "function", pause=0)
    (own / "train.py").write_text(ASLEEP)
    driver = commands.start(file)
    logs = commands.root / "logs"
    wait_for(lambda: any("asleep" in log.read_text() for log in logs.glob("*/*.log")))
    (sweep,) = commands.ledger.sweeps()
    code, printed = commands.run("stop", sweep.id)
    assert code == 0, printed
    code, printed = finish(driver)
    assert code == 4, printed
    attempts = commands.ledger.attempts(sweep.id)
    assert {(attempt.state, attempt.cause) for attempt in attempts} == {("LOST", "interrupted")}
    code, printed = commands.run("check")
    assert code == 0, printed


@pytest.fixture
def read_elsewhere(commands: Commands) -> Callable[..., Any]:
    """Return a function that runs code in a process that has the registered models, but not this repository.

    It returns what the last line that the code prints says in JSON.
    """
    variables = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{commands.root}/mlflow.db"}
    variables.pop("PYTHONPATH", None)

    def read(code: str, *arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=variables,
            cwd=commands.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return read


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_chosen_trial_of_a_program_is_a_registered_model(
    commands: Commands, read_elsewhere: Callable[..., Any]
) -> None:
    """Another process, which has neither the program nor this repository, gets the answers of this one."""
    own = commands.folder / "own"
    file = Path(written(own, "program", pause=0))
    with (own / "model.py").open("a") as model:
        model.write(PREDICT)
    file.write_text(file.read_text().replace("OfNnx", "Net"))
    code, printed = commands.run(str(file))
    assert code == 0, printed
    (sweep,) = commands.ledger.sweeps()
    best = Sweep.find(sweep.id, root=commands.folder / "mlruns").best
    assert best is not None
    numbers, _ = load_digits(return_X_y=True)
    inputs = (numbers[:4] / 16).astype(np.float32)
    expected = best.trained_program().predict({"inputs": inputs})
    shutil.rmtree(own)
    answers = read_elsewhere(LOADED, json.dumps(inputs.tolist()))
    assert answers == {name: values.tolist() for name, values in expected.items()}


SAVED = """
import json, mlflow
from sklearn.datasets import load_digits
model = mlflow.pyfunc.load_model("models:/digits-train@champion")
print(json.dumps(model.predict(load_digits().data[1400:]).tolist()))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_the_function_of_the_page_has_saved_is_a_registered_model(
    commands: Commands, read_elsewhere: Callable[..., Any]
) -> None:
    """Another process, which has neither the script nor this repository, gets the accuracy of the trial."""
    blocks = re.findall(r"```(?:python|yaml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    models = (ROOT / "docs" / "models.md").read_text()
    [load] = [block for block in re.findall(r"```python\n(.*?)```", models, re.DOTALL) if "def load" in block]
    own = commands.folder / "own"
    own.mkdir()
    (own / "train.py").write_text(f"{blocks[0]}\n\n{load}")
    text = blocks[1].replace(
        "{function: train.py:train}", "{function: train.py:train, predictor: train.py:load}"
    )
    (own / "digits.yaml").write_text(text)
    code, printed = commands.run(str(own / "digits.yaml"), "--set", "budget.trials=2")
    assert code == 0, printed
    (sweep,) = commands.ledger.sweeps()
    best = max(trial.value or 0.0 for trial in commands.ledger.trials(sweep.id))
    shutil.rmtree(own)
    answers = np.array(read_elsewhere(SAVED))
    assert np.mean(answers == load_digits().target[1400:]) == pytest.approx(best)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_ten_lines_of_the_page_are_a_sweep_that_is_resumed(commands: Commands) -> None:
    """The script, the file and the command of docs/trainables.md as they stand, killed once."""
    page = PAGE.read_text()
    blocks = re.findall(r"```(?:python|yaml)\n(.*?)```", page, re.DOTALL)
    [name] = re.findall(r"python -m orchestrator\.sweep (\S+\.yaml)", page)
    own = commands.folder / "own"
    own.mkdir()
    (own / "train.py").write_text(blocks[0])
    (own / name).write_text(blocks[1])
    driver = commands.start(str(own / name))
    wait_for(lambda: (commands.root / "sweeps.db").exists())
    wait_for(lambda: any(commands.ledger.reports(sweep.id) for sweep in commands.ledger.sweeps()))
    os.kill(driver.pid, signal.SIGKILL)
    finish(driver)
    assert not commands.wait_until_gone(30)
    code, printed = commands.run(str(own / name), timeout=500)
    assert code == 0, printed
    assert "Resuming" in printed
    (sweep,) = commands.ledger.sweeps()
    trials = commands.ledger.trials(sweep.id)
    assert len(trials) == 16
    assert {trial.state for trial in trials} <= {"COMPLETE", "PRUNED"}
    for trial in trials:
        steps = [report.step for report in commands.ledger.trial_reports(trial.key)]
        assert steps == list(range(1, trial.step + 1)), trial.key
    code, printed = commands.run("check")
    assert code == 0, printed


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["command", UNAWARE, IN_C, "program"])
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
@pytest.mark.parametrize("kind", ["function", "command", UNAWARE, IN_C, IN_TORCH, "program"])
def test_kills_change_no_number(commands: Commands, kind: str) -> None:
    """A killed worker, then a killed driver: every report equals that of an undisturbed sweep.

    Trials that had started again would have the same curves: that they went on is in their logs.
    """
    own = commands.folder / "own"
    pause = 0.3
    calm = commands.folder / "calm"
    code, printed = commands.run(written(own, kind, pause=pause), SWEEP_ROOT=str(calm))
    assert code == 0, printed
    expected = curves(Ledger.open(f"sqlite:///{calm}/sweeps.db"))

    def reporters() -> list[str]:
        known = (commands.root / "sweeps.db").exists() and commands.ledger.sweeps()
        return [report.trial_key for report in commands.ledger.reports(known[0].id)] if known else []

    file = written(own, kind, pause=pause)
    driver = commands.start(file)
    wait_for(lambda: len(set(reporters())) >= 2)  # both trials that run have something to lose
    commands.titled("ray::Worker")[0].kill()
    before = len(reporters())
    wait_for(lambda: len(reporters()) >= before + 3)
    os.kill(driver.pid, signal.SIGKILL)
    finish(driver)
    assert not commands.wait_until_gone(30)
    wait_for(lambda: not scripts(own), 20)
    code, printed = commands.run(file)
    assert code == 0, printed
    assert "Resuming" in printed
    assert curves(commands.ledger) == expected
    check_each_attempt_goes_on(commands)
    code, printed = commands.run("check")
    assert code == 0, printed


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_program_in_slots_is_stopped_early_killed_and_resumed(commands: Commands) -> None:
    """Eight trials in four slots: a killed worker and a killed driver change no number."""
    own, calm = commands.folder / "own", commands.folder / "calm"
    eight = ["--set", "budget.trials=8"]
    file = written(own, "program in slots", pause=0.3)
    code, printed = commands.run(file, *eight, SWEEP_ROOT=str(calm), **DEVICE)
    assert code == 0, printed
    undisturbed = Ledger.open(f"sqlite:///{calm}/sweeps.db")
    expected = curves(undisturbed)
    check_later_trials_compile_nothing(undisturbed)

    def reported(attempt: int = 1) -> set[str]:
        known = (commands.root / "sweeps.db").exists() and commands.ledger.sweeps()
        rows = commands.ledger.reports(known[0].id) if known else []
        return {row.trial_key for row in rows if row.attempt_id.endswith(f".{attempt}")}

    written(own, "program in slots", pause=0.3, scheduler="{asha: {reduction: 2, grace: 0.25}}")
    driver = commands.start(file, *eight, **DEVICE)
    wait_for(lambda: len(reported()) == 4)
    commands.titled("ray::SharedWorker")[0].kill()
    wait_for(lambda: bool(reported(2)))
    os.kill(driver.pid, signal.SIGKILL)
    finish(driver)
    assert not commands.wait_until_gone(30)
    code, printed = commands.run(file, *eight, **DEVICE)
    assert code == 0, printed
    assert "Resuming" in printed
    (sweep,) = commands.ledger.sweeps()
    trials = commands.ledger.trials(sweep.id)
    assert len(trials) == 8
    assert {trial.state for trial in trials} == {"COMPLETE", "PRUNED"}
    found = curves(commands.ledger)
    assert found == {point: expected[point] for point in found}
    for trial in trials:
        steps = [report.step for report in commands.ledger.trial_reports(trial.key)]
        assert steps == list(range(20, trial.step + 1, 20)), trial.key
    check_each_attempt_goes_on(commands)
    code, printed = commands.run("check")
    assert code == 0, printed


COUNTED = """

import os
import jax.monitoring

def _count(event, **_):
    with open(os.environ["SWEEP_COUNTED_IN"], "a") as file:
        file.write(f"{event}\\n")

jax.monitoring.register_event_listener(_count)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_resumed_driver_compiles_nothing_again(commands: Commands) -> None:
    """JAX itself says what the engine's process asks to compile, and what it finds compiled."""
    own, cache, counted = (commands.folder / name for name in ("own", "cache", "counted"))
    cache.mkdir()
    variables = {**DEVICE, "JAX_COMPILATION_CACHE_DIR": str(cache), "SWEEP_COUNTED_IN": str(counted)}
    file = written(own, "program in slots", pause=0.3)
    with (own / "model.py").open("a") as code:
        code.write(COUNTED)

    def reported(attempt: int) -> int:
        known = (commands.root / "sweeps.db").exists() and commands.ledger.sweeps()
        rows = commands.ledger.reports(known[0].id) if known else []
        return len({row.trial_key for row in rows if row.attempt_id.endswith(f".{attempt}")})

    driver = commands.start(file, **variables)
    wait_for(lambda: reported(1) == 3, 400)
    os.kill(driver.pid, signal.SIGKILL)
    finish(driver)
    assert not commands.wait_until_gone(30)
    compiled, before = {*cache.glob("*-cache")}, counted.read_text()
    assert before.count("cache_misses") == len(compiled) > 0
    driver = commands.start(file, **variables)
    wait_for(lambda: reported(2) == 3, 400)
    resumed = counted.read_text().removeprefix(before)
    new = {*cache.glob("*-cache")} - compiled
    asked, found = resumed.count("compile_requests_use_cache"), resumed.count("cache_hits")
    assert found > 0
    assert asked - found == len(new)  # what only a resumed trial needs
    (sweep,) = commands.ledger.sweeps()
    assert commands.run("stop", sweep.id)[0] == 0
    finish(driver, timeout=60)


def check_later_trials_compile_nothing(ledger: Ledger) -> None:
    """Check that the trials that took over a slot found every program compiled."""
    (sweep,) = ledger.sweeps()
    first = {
        trial.number: ledger.trial_reports(trial.key)[0].metrics["seconds/compile"]
        for trial in ledger.trials(sweep.id)
    }
    assert sum(first[number] for number in range(4)) > 0
    assert [first[number] for number in range(4, 8)] == [0.0] * 4
