"""Attempts of functions and commands: real processes, without Ray."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.assignment import Assignment, Outcome
from orchestrator.scripts import reported_folder
from orchestrator.scripts import script_attempt as attempts
from orchestrator.scripts import script_process as processes
from orchestrator.scripts import supervisor as keepers
from orchestrator.scripts.script_attempt import OwnProcess, _limit_behind, _out_of_memory
from orchestrator.session.attempts import finite_or_failed
from orchestrator.training import process
from orchestrator.training.attempt import TrialLog, failure_outcome
from tests.attempts import asked_since_the_last_look, assignment
from trainables import checkpoint
from trainables.errors import Refusal
from trainables.trial import Clock, ScriptSettings

PARAMS = {"rate": 0.5, "layers": 2, "block.width": 8}

FUNCTION = """
import json

def train(trial):
    state = {"sum": 0.0}
    if trial.resume is not None:
        state = json.loads((trial.resume / "state.json").read_text())
        assert (trial.resume / "below" / "more.txt").read_text() == "more"
    for step in range(trial.start, trial.steps):
        state["sum"] += trial.params["rate"] * (step + 1)
        if (step + 1) % trial.interval == 0:
            folder = trial.folder / "checkpoint"
            (folder / "below").mkdir(parents=True, exist_ok=True)
            (folder / "state.json").write_text(json.dumps(state))
            (folder / "below" / "more.txt").write_text("more")
            print("at", step + 1)
            if not trial.report(step + 1, {"val/loss": state["sum"]}, checkpoint=folder):
                return
"""


def files_of(outcome: Outcome) -> dict[str, bytes]:
    """Return the files of an outcome's checkpoint by name."""
    assert outcome.checkpoint is not None, outcome
    arrays, _ = checkpoint.load(Path(outcome.checkpoint.path), outcome.checkpoint.digest)
    return {name: array.tobytes() for name, array in arrays.items()}


class Runs:
    """Attempts of one trial, by the text of a script.

    Attributes:
        folder: of the script, of checkpoints and of the log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.own = folder, OwnProcess()
        self._attempt = 0

    def function(self, text: str, **settings: Any) -> Assignment:
        """Return an assignment of the function `train` of a file."""
        (self.folder / "train.py").write_text(textwrap.dedent(text))
        return self._assigned(function="train.py:train", command=None, **settings)

    def command(self, text: str, *words: str, **settings: Any) -> Assignment:
        """Return an assignment of a Python script."""
        (self.folder / "script.py").write_text(textwrap.dedent(text))
        return self._assigned(function=None, command=(sys.executable, "script.py", *words), **settings)

    def _assigned(self, *, steps: int = 6, interval: int = 2, **settings: Any) -> Assignment:
        fields = {"shell": False, "folder": str(self.folder), "params": PARAMS, "seed": 7, **settings}
        own = assignment(self.folder, 0)
        return replace(
            own,
            settings=ScriptSettings(training=Clock(steps, interval), **fields),
            checkpoints=str(self.folder / "kept"),
            log=str(self.folder / "trial.log"),
            store=None,
            resume=None,
        )

    def all(self, assigned: Assignment) -> list[Outcome]:
        """Return every outcome of an attempt, and end it."""
        outcomes = [self.own.advance(assigned)]
        while not outcomes[-1].done:
            outcomes.append(self.own.advance(assigned))
        self.own.release()
        return outcomes

    @property
    def log(self) -> str:
        """Return what the trial's log holds."""
        return (self.folder / "trial.log").read_text()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    started = Runs(tmp_path)
    yield started
    started.own.release()


def test_every_report_is_an_outcome_with_a_checkpoint(runs: Runs) -> None:
    outcomes = runs.all(runs.function(FUNCTION))
    assert [(outcome.step, outcome.metrics["val/loss"]) for outcome in outcomes] == [
        (2, 1.5),
        (4, 5),
        (6, 10.5),
    ]
    assert [outcome.done for outcome in outcomes] == [False, False, True]
    assert all(outcome.checkpoint is not None for outcome in outcomes)
    assert "attempt 1: at 4" in runs.log


def test_a_script_may_use_all_cores_of_its_trial(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker itself is limited to one thread."""
    for name, value in process.worker_environment(0.0).items():
        monkeypatch.setenv(name, value)
    text = """
    import os

    def train(trial):
        trial.report(6, {"val/loss": int(os.environ["OMP_NUM_THREADS"])})
    """
    threads = [runs.all(runs.function(text, cpu=cpu))[-1].metrics["val/loss"] for cpu in (1.0, 3.5)]
    assert threads == [1, 3]


def test_an_attempt_goes_on_from_a_checkpoint(runs: Runs) -> None:
    assigned = runs.function(FUNCTION)
    first = runs.own.advance(assigned)
    runs.own.release()
    rest = runs.all(replace(assigned, resume=first.checkpoint))
    assert [(outcome.step, outcome.metrics["val/loss"]) for outcome in rest] == [(4, 5), (6, 10.5)]


def test_without_checkpoints_an_attempt_starts_again_and_repeats_no_report(runs: Runs) -> None:
    text = """
    def train(trial):
        assert trial.resume is None and trial.start == 0
        for step in range(1, 4):
            trial.report(step, {"val/loss": step})
    """
    assigned = runs.function(text, steps=3, interval=1)
    second = [runs.own.advance(assigned) for _ in range(2)][-1]
    runs.own.release()
    (rest,) = runs.all(replace(assigned, resume=second.checkpoint))
    assert (rest.step, rest.done) == (3, True)


def test_a_report_without_a_checkpoint_keeps_the_one_before(runs: Runs) -> None:
    text = """
    def train(trial):
        assert (trial.resume is not None) == (trial.start == 2)
        (trial.folder / "state").write_text("of step 2")
        for step in range(trial.start + 1, 6):
            trial.report(step, {"val/loss": step}, checkpoint=trial.folder if step == 2 else None)
    """
    assigned = runs.function(text, steps=5, interval=1)
    first = [runs.own.advance(assigned) for _ in range(4)]
    runs.own.release()
    paths = [one.checkpoint.path for one in first if one.checkpoint is not None]
    assert len(paths) == 4
    assert paths[1] == paths[2] == paths[3] != paths[0]
    (rest,) = runs.all(replace(assigned, resume=first[-1].checkpoint))
    assert (rest.step, rest.done) == (5, True)
    assert "started at step 2" in runs.log


def test_a_checkpoint_in_the_folder_of_the_trial_is_read_there_and_stays(runs: Runs) -> None:
    """Another one is copied. A link to what is outside belongs to neither."""
    script = """
    import os
    from pathlib import Path

    def train(trial):
        other, checkpoints = Path(os.environ["TMPDIR"], "other"), Path(os.environ["SWEEP_CHECKPOINT"])
        for folder in (trial.folder, other):
            folder.mkdir(exist_ok=True)
            (folder / "state").write_text(folder.name)
        made = checkpoints.stat().st_mtime_ns
        trial.report(2, {"val/loss": 1.0}, checkpoint=trial.folder)
        print("untouched", checkpoints.stat().st_mtime_ns == made)
        print("kept", os.listdir(trial.folder))
        trial.report(4, {"val/loss": 1.0}, checkpoint=other)
        (trial.folder / "linked").symlink_to(other / "state")
        trial.report(6, {"val/loss": 1.0}, checkpoint=trial.folder)
        print("other", os.listdir(other))
    """
    outcomes = runs.all(runs.function(script))
    contents = [files_of(outcome) for outcome in outcomes]
    scratch = {"state": b"scratch"}
    assert contents == [scratch, {"state": b"other"}, scratch]
    assert "linked are links to what is outside the checkpoint, and left out of it" in runs.log
    assert "untouched True" in runs.log
    assert "kept ['state']" in runs.log
    assert "other ['state']" in runs.log


def test_the_stage_of_the_next_checkpoint_is_there_before_it_and_not_after_the_end(runs: Runs) -> None:
    """Creating it takes as long as writing a small checkpoint, and no report waits for it."""
    script = f"""
    import time
    from pathlib import Path

    def train(trial):
        kept = Path({str(runs.folder / "kept")!r})
        (trial.folder / "state").write_text("x")
        for step in (2, 4):
            trial.report(step, {{"val/loss": 1.0}}, checkpoint=trial.folder)
            until = time.monotonic() + 10
            while not (stages := list(kept.glob(".prepared-*"))) and time.monotonic() < until:
                time.sleep(0.01)
            print("at step", step, "are", len(stages))
        trial.report(6, {{"val/loss": 1.0}})
    """
    outcomes = runs.all(runs.function(script))
    assert [outcome.step for outcome in outcomes] == [2, 4, 6]
    assert "at step 2 are 1" in runs.log
    assert "at step 4 are 1" in runs.log
    assert not list((runs.folder / "kept").glob(".*"))


def test_a_slow_script_is_looked_at_seldom(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many attempts wait at once on a machine: one that reports once a second must cost little."""
    looks = []
    has_more = attempts.ScriptAttempt._has_more
    monkeypatch.setattr(
        attempts.ScriptAttempt, "_has_more", lambda self: [looks.append(1), has_more(self)][1]
    )
    script = """
    import time

    def train(trial):
        for step in (2, 4, 6):
            time.sleep(0.4)
            trial.report(step, {"val/loss": 1.0})
    """
    assigned = runs.function(script)
    runs.own.advance(assigned)
    runs.own.advance(assigned)
    looks.clear()
    runs.own.advance(assigned)
    assert len(looks) < 60, "of which 25 are one each 16 ms"


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="of Linux")
def test_what_keeps_a_command_sleeps_until_the_command_ends(runs: Runs) -> None:
    text = """
    import os, time
    from pathlib import Path

    def wakes():
        lines = Path(f"/proc/{os.getppid()}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("voluntary_ctxt_switches")).split()[1])

    time.sleep(0.2)
    before = wakes()
    time.sleep(0.6)
    line = '{"step": 6, "metrics": {"val/loss": %d}}' % (wakes() - before)
    open(os.environ["SWEEP_REPORTS"], "a").write(f"{line}\\n")
    """
    (first,) = runs.all(runs.command(text))
    assert first.metrics["val/loss"] <= 2


@pytest.mark.parametrize(
    "place", ["/etc", "{folder}/../checkpoints", "{folder}x", "{checkpoints}/a", "/", "{link}"]
)
def test_no_checkpoint_is_read_outside_the_folders_of_the_trial(runs: Runs, place: str) -> None:
    script = f"""
    import json, os, time
    own = os.environ["SWEEP_FOLDER"]
    os.makedirs(own + "x")
    os.makedirs(os.environ["SWEEP_CHECKPOINT"] + "/a")
    os.symlink("/etc", own + "/link")
    place = {place!r}.format(folder=own, checkpoints=os.environ["SWEEP_CHECKPOINT"], link=own + "/link")
    with open(os.environ["SWEEP_REPORTS"], "a") as file:
        print(json.dumps({{"step": 2, "metrics": {{"val/loss": 1.0}}, "checkpoint": place}}), file=file)
    time.sleep(60)
    """
    (outcome,) = runs.all(runs.command(script))
    assert outcome.failure == "error"
    assert "must be a folder inside SWEEP_CHECKPOINT, or its absolute path inside SWEEP_FOLDER" in str(
        outcome.message
    )


def test_a_function_that_returns_ends_its_trial(runs: Runs) -> None:
    outcomes = runs.all(runs.function("def train(trial): trial.report(2, {'val/loss': 1.0})"))
    assert [(one.step, one.done, one.complete) for one in outcomes] == [(2, False, False), (2, True, True)]
    assert outcomes[-1].checkpoint == outcomes[0].checkpoint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def train(trial): raise ValueError('no such layer')",
            "exit code 1: ValueError: no such layer "
            "(train.py, line 1: def train(trial): raise ValueError('no such layer'))",
        ),
        (
            "import json\ndef train(trial): json.loads('')",
            "(train.py, line 2: def train(trial): json.loads(''))",
        ),
        (
            "def train(trial):\n    raise ValueError('a\\nb')",
            "exit code 1: ValueError: a (train.py, line 2: raise",
        ),
        (
            "def train(trial: pass",
            "SyntaxError: invalid syntax (train.py, line 1: def train(trial: pass)",
        ),
        ("def train(trial): pass", "has not reported any metric"),
        ("def other(trial): pass", "has no attribute 'train'"),
        ("import os\ndef train(trial): os.kill(os.getpid(), 9)", "signal 9"),
        ("def train(trial):\n    for at in (2, 1): trial.report(at, {'a': 1})", "whole number from 3"),
        ("def train(trial): trial.report(1, {'a': 'b'})", "could not convert"),
        ("def train(trial): trial.report(1, {'a': 1}, checkpoint='missing')", "No such file"),
    ],
)
def test_a_failure_is_an_outcome_with_its_cause(runs: Runs, text: str, message: str) -> None:
    last = runs.all(runs.function(text))[-1]
    assert last.failure == "error"
    assert message in str(last.message)


def test_a_report_without_the_objective_is_refused(runs: Runs) -> None:
    assigned = replace(runs.function(FUNCTION), observed=("val/accuracy",))
    (outcome,) = runs.all(assigned)
    assert "must include val/accuracy, which the search-space file names (got val/loss" in str(
        outcome.message
    )


def test_a_report_that_others_may_copy_needs_a_checkpoint(runs: Runs) -> None:
    """The last report needs none: no trial goes on from it."""
    text = """
    def train(trial):
        for step in (2, 4, 6):
            trial.report(step, {"val/loss": 1}, checkpoint=trial.folder if step in SAVED else None)
    """
    missing = runs.all(replace(runs.function(text.replace("SAVED", "(2,)")), copied=True))
    assert [(outcome.step, outcome.failure) for outcome in missing] == [(2, None), (0, "error")]
    assert "must include a checkpoint" in str(missing[-1].message)
    runs.own.release()
    saved = runs.all(replace(runs.function(text.replace("SAVED", "(2, 4)")), copied=True))
    assert [(outcome.step, outcome.failure) for outcome in saved] == [(2, None), (4, None), (6, None)]


def test_times_that_the_service_measures_may_be_constrained_and_optimised(runs: Runs) -> None:
    observed = ("val/loss", "seconds/train", "seconds/evaluate")
    outcomes = runs.all(replace(runs.function(FUNCTION), observed=observed))
    assert [outcome.failure for outcome in outcomes] == [None, None, None]
    assert all(outcome.metrics["seconds/train"] > 0 for outcome in outcomes)


def test_the_traceback_is_in_the_log(runs: Runs) -> None:
    runs.all(runs.function("def train(trial):\n    boundary = 1 / 0"))
    assert "boundary = 1 / 0" in runs.log
    assert "ZeroDivisionError" in runs.log


PAGE = Path(__file__).parents[3] / "docs" / "trainables.md"
COMMAND = """
import argparse, json, os, sys
parser = argparse.ArgumentParser()
for name in ("--rate", "--layers", "--width", "--seed", "--out"):
    parser.add_argument(name)
given = vars(parser.parse_args())
with open(os.environ["SWEEP_PARAMS"]) as file:
    given["file"] = json.load(file)
given["variable"] = os.environ["SWEEP_PARAM_BLOCK_WIDTH"]
given["secrets"] = [name for name in os.environ if "TOKEN" in name or name.startswith("RAY_")]
given["named"] = [name for name in os.environ if name.startswith("SWEEP_")]
folder = os.path.join(os.environ["SWEEP_CHECKPOINT"], "next")
os.mkdir(folder)
with open(os.path.join(folder, "given.json"), "w") as file:
    json.dump(given, file)
with open(os.environ["SWEEP_REPORTS"], "a") as file:
    file.write(json.dumps({"step": 6, "metrics": {"val/loss": 0.25}, "checkpoint": "next"}) + "\\n")
"""
TRACKED = """
import json, os
names = [name for name in os.environ if name.startswith("MLFLOW_")]
print(json.dumps({name: os.environ[name] for name in names}))
with open(os.environ["SWEEP_REPORTS"], "a") as file:
    file.write(json.dumps({"step": 6, "metrics": {"val/loss": 0.25}}) + "\\n")
"""
WORDS = ("--rate", "{rate:.2f}", "--layers={layers}", "--width", "{block.width}", "--seed", "{seed}")


def test_a_command_gets_its_parameters_and_no_secret(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "do not tell")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "do not tell")
    (outcome,) = runs.all(runs.command(COMMAND, *WORDS, "--out", "{folder}/{{x}}"))
    assert (outcome.step, outcome.metrics["val/loss"], outcome.done) == (6, 0.25, True)
    assert outcome.checkpoint is not None
    resumed = replace(runs.command(COMMAND, *WORDS), resume=outcome.checkpoint)
    place = processes.AttemptFolder(runs.folder / "place")
    attempt = attempts.ScriptAttempt(resumed)
    try:
        given = json.loads((attempt._place.resume / "given.json").read_text())
    finally:
        attempt.release()
    assert (given["rate"], given["layers"], given["width"], given["seed"]) == ("0.50", "2", "8", "7")
    assert given["file"] == PARAMS
    assert given["variable"] == "8"
    assert given["secrets"] == []
    _, _, table = PAGE.read_text().partition("| variable | content |\n")
    on_the_page = re.findall(r"`(SWEEP_(?!PARAM_)\w+)`", table.partition("\n\n")[0])
    assert {name for name in given["named"] if not name.startswith("SWEEP_PARAM_")} == set(on_the_page)
    assert given["out"].endswith("/scratch/{x}")
    assert not place.folder.exists()


def test_secrets_that_a_script_prints_or_raises_are_written_nowhere(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "canary-of-the-worker")
    text = """
    def train(trial):
        print("read canary-of-the-worker from a file")
        trial.report(1, {"val/loss": 1.0}, checkpoint=trial.folder)
        raise RuntimeError("no answer of db://ada:canary-of-the-address@host/x with canary-of-the-worker")
    """
    last = runs.all(runs.function(text))[-1]
    assert "no answer of db://host/x with ***" in str(last.message)
    assert "no answer of db://host/x with ***" in runs.log
    # The module itself names them, and so does what Python has compiled of it.
    written = [
        path for path in runs.folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert [path for path in written if b"canary" in path.read_bytes()] == []
    assert {path.suffix for path in written} >= {".log"}
    assert "canary" not in str(last.to_result())


def test_what_a_script_does_not_get_is_said_once(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name and with the way to pass it, and never with its value."""
    monkeypatch.setenv("SWEEP_LEFT_OUT", "OF_THE_DRIVER")
    monkeypatch.setenv("SWEEP_VARIABLES", "HUB_TOKEN")
    for name in ("HUB_TOKEN", "MY_API_TOKEN", "NAMED_LIKE_NOTHING"):
        monkeypatch.setenv(name, f"canary-of-{name}")
    for name, value in {"TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "2048"}.items():
        monkeypatch.setenv(name, value)
    text = """
    import os
    def train(trial):
        print("HAS", sorted(name for name, value in os.environ.items() if "canary" in value))
        print(*(os.environ.get(name) for name in ("TOKENIZERS_PARALLELISM", "MAX_TOKENS", "SWEEP_VARIABLES")))
        trial.report(6, {"val/loss": 1.0})
    """
    first = runs.function(text)
    runs.all(first)
    runs.all(replace(first, attempt_id=first.attempt_id.replace(".1", ".2")))
    (line,) = [line for line in runs.log.splitlines() if "not passed on" in line]
    assert all(name in line for name in ("MY_API_TOKEN", "NAMED_LIKE_NOTHING", "OF_THE_DRIVER"))
    assert "SWEEP_VARIABLES=NAME" in line
    assert "HUB_TOKEN" not in line
    assert runs.log.count("HAS ['HUB_TOKEN']") == 2
    assert runs.log.count("false 2048 None") == 2
    assert "canary" not in runs.log


@pytest.mark.parametrize("kind", ["function", "command"])
def test_the_environment_describes_the_process_of_the_script(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Not the shell of the driver, nor the Ray that an earlier sweep has started."""
    for name in ("OLDPWD", "SHLVL", "COLUMNS", "LINES", "_", "PYTHONSAFEPATH"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PWD", "/tmp")
    text = """
    import json, os
    def train(trial):
        names = ("PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "_", "PYTHONSAFEPATH")
        print("HAS", os.getcwd(), *(os.environ.get(name) for name in names))
        trial.report(6, {"val/loss": 1.0})
    """
    called = textwrap.dedent(text) + "\nimport sweep_client\ntrain(sweep_client.trial())\n"
    runs.all(runs.function(text) if kind == "function" else runs.command(called))
    assert f"HAS {runs.folder} {runs.folder} None None None None None None" in runs.log


@pytest.mark.slow_after(4)
@pytest.mark.parametrize(
    "name", ["trainables.py", "orchestrator.py", "sweep_client.py", "sweep_client/__init__.py", "yaml.py"]
)
def test_a_function_imports_its_own_modules_whatever_their_names_are(runs: Runs, name: str) -> None:
    file = runs.folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("N = 4")
    name = file.stem if file.stem != "__init__" else file.parent.name
    text = f"""
    import {name} as own
    from beside import M
    def train(trial):
        trial.report(6, {{"val/loss": own.N + M}})
    """
    (runs.folder / "beside.py").write_text("M = 1")
    (outcome,) = runs.all(runs.function(text))
    assert outcome.failure is None, runs.log
    assert outcome.metrics["val/loss"] == 5


@pytest.mark.parametrize("how", ["function", "script", "module", "another interpreter"])
def test_a_script_imports_its_own_modules_and_the_client(runs: Runs, how: str) -> None:
    names = ("config", "data", "utils", "trainables", "orchestrator")
    for name in names:
        (runs.folder / f"{name}.py").write_text(f"NAME = __file__ + ' of {name}'")
    text = f"""
    import sys
    import {", ".join(names)}
    def train(trial):
        print([one.NAME for one in ({", ".join(names)})], sys.prefix)
        trial.report(6, {{"val/loss": 1.0}})
    """
    called = textwrap.dedent(text) + "\nimport sweep_client\ntrain(sweep_client.trial())\n"
    if how == "function":
        assigned = runs.function(text)
    else:
        assigned = runs.command(called)
        python = runs.folder / "environment" / "bin" / "python"
        if how == "another interpreter":
            venv.create(runs.folder / "environment")
        words = {"module": ("-m", "script"), "another interpreter": ("script.py",)}.get(how, ("script.py",))
        first = str(python) if how == "another interpreter" else sys.executable
        assigned = replace(assigned, settings=replace(assigned.settings, command=(first, *words)))
    (outcome,) = runs.all(assigned)
    assert outcome.failure is None, runs.log
    assert str([f"{runs.folder}/{name}.py of {name}" for name in names]) in runs.log
    assert (f"{runs.folder}/environment" in runs.log) == (how == "another interpreter")


def test_a_metric_may_have_the_name_of_a_key_of_the_result(runs: Runs) -> None:
    text = """
    def train(trial):
        for step in range(trial.steps):
            trial.report(step + 1, {"val/loss": 1.0, "step": 0.0, "done": 1.0, "queued": 1.0})
    """
    outcomes = runs.all(runs.function(text, steps=2))
    results = [outcome.to_result() for outcome in outcomes]
    assert [(one["step"], one["done"], one["queued"]) for one in results] == [
        (1, False, False),
        (2, True, False),
    ]
    assert outcomes[-1].metrics["step"] == 0


def test_a_script_can_log_in_where_the_run_of_its_trial_is(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "do not tell")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = {"MLFLOW_RUN_ID": "abc", "MLFLOW_TRACKING_URI": "http://localhost:5000"}
    for tracking in ({}, run):
        assignment = replace(runs.command(TRACKED), tracking=tracking)
        runs.all(assignment)
        printed = Path(assignment.log).read_text().splitlines()
        given = json.loads(next(line[line.index("{") :] for line in reversed(printed) if "{" in line))
        assert {name: given.get(name) for name in run} == {name: tracking.get(name) for name in run}
        assert ("MLFLOW_TRACKING_PASSWORD" in given) == bool(tracking)


def test_a_script_logs_in_with_the_address_that_its_worker_knows(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that an assignment names has lost its user and its password, because files hold it."""
    run = {"MLFLOW_RUN_ID": "abc", "MLFLOW_TRACKING_URI": "http://localhost:5000"}
    for known, expected in (
        ("http://me:pass@localhost:5000", "http://me:pass@localhost:5000"),
        ("http://me:pass@elsewhere:5000", "http://localhost:5000"),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", known)
        assert processes.with_access(run)["MLFLOW_TRACKING_URI"] == expected
    assert processes.with_access({}) == {}


def test_a_command_may_use_the_client(runs: Runs) -> None:
    text = """
    import sweep_client
    trial = sweep_client.trial()
    for step in (2, 4, 6):
        go_on = trial.report(step, {"val/loss": trial.params["rate"] * step})
    print("the last answer:", go_on)
    """
    outcomes = runs.all(runs.command(text))
    assert [outcome.metrics["val/loss"] for outcome in outcomes] == [1, 2, 3]
    assert "the last answer: False" in runs.log


def test_a_shell_runs_only_where_the_file_asks_for_one(runs: Runs) -> None:
    line = 'echo \'{{"step": 6, "metrics": {{"val/loss": {rate}}}}}\' >> "$SWEEP_REPORTS"'
    in_shell = runs.command("", shell=True)
    settings = replace(in_shell.settings, command=(line,))  # type: ignore[type-var]
    (outcome,) = runs.all(replace(in_shell, settings=settings))
    assert outcome.metrics["val/loss"] == 0.5
    words = replace(settings, shell=False, command=("echo", "$HOME;", "exit", "3"))  # type: ignore[type-var]
    last = runs.all(replace(in_shell, settings=words))[-1]
    assert "attempt 1: $HOME; exit 3" in runs.log
    assert "has not reported any metric" in str(last.message)


def test_what_cannot_be_started_is_an_error(runs: Runs) -> None:
    assigned = runs.command("")
    settings = replace(assigned.settings, command=("no-such-program",))  # type: ignore[type-var]
    (outcome,) = runs.all(replace(assigned, settings=settings))
    assert "no-such-program" in str(outcome.message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no JSON", "must be {"),
        ('{"step": 1.5, "metrics": {}}', "whole number"),
        (f'{{"step": {10**20}, "metrics": {{"val/loss": 1}}}}', "whole number from 0 to"),
        ('{"step": 1, "metrics": {"a": "b"}}', "must be {"),
        ('{"step": 1, "metrics": {}, "checkpoint": "../../etc"}', "inside SWEEP_CHECKPOINT"),
        ('{"step": 1, "metrics": {}, "checkpoint": "/etc"}', "inside SWEEP_CHECKPOINT"),
        ('{"step": 1, "metrics": {}, "checkpoint": "missing"}', "no folder missing"),
    ],
)
def test_a_line_that_is_no_report_is_refused(runs: Runs, line: str, message: str) -> None:
    text = f"import os\nopen(os.environ['SWEEP_REPORTS'], 'a').write({line!r} + '\\n')"
    last = runs.all(runs.command(text))[-1]
    assert last.failure == "error"
    assert message in str(last.message)


HUGE = "1" + 400 * "0"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"step": true, "metrics": {"a": 1}}', "a step must be a whole number from 0"),
        ('{"step": 2.0, "metrics": {"a": 1}}', "a step must be a whole number from 0"),
        ('{"step": "2", "metrics": {"a": 1}}', "a step must be a whole number from 0"),
        ('{"step": null, "metrics": {"a": 1}}', "a step must be a whole number from 0"),
        ('{"step": -1, "metrics": {"a": 1}}', "a step must be a whole number from 0"),
        (f'{{"step": {HUGE}, "metrics": {{"a": 1}}}}', "a step must be a whole number from 0"),
        ('{"step": 1' + 5000 * "0" + ', "metrics": {}}', "a line must be {"),
        ('{"step": 2, "metrics": {"a": {"b": 1}}}', "a line must be {"),
        ('{"step": 2, "metrics": {"a": [1]}}', "a line must be {"),
        ('{"step": 2, "metrics": {"a": null}}', "a line must be {"),
        ('{"step": 2, "metrics": [["a", 1]]}', "a line must be {"),
        (f'{{"step": 2, "metrics": {{"a": {HUGE}}}}}', "a line must be {"),
        ('{"step": 2}', "a line must be {"),
        ("[2, {}]", "a line must be {"),
        ("2", "a line must be {"),
        ("null", "a line must be {"),
        ("", "a line must be {"),
        ('{"step": 2, "metrics": {"a": ' + 100_000 * "[" + "}}", "a line must be {"),
        ('{"step": 2, "metrics": {"": 1}}', "a metric must have a name of 1 to 250 characters"),
        ('{"step": 2, "metrics": {"a\\u0000": 1}}', "a metric must have a name of 1 to 250 characters"),
        ('{"step": 2, "metrics": {"\\ud800": 1}}', "a metric must have a name of 1 to 250 characters"),
        ('{"step": 2, "metrics": {"' + 251 * "a" + '": 1}}', "a metric must have a name of 1 to 250"),
        ('{"step": 2, "metrics": {"seconds/train": 1}}', "a metric must not begin with seconds/ or size/"),
        ('{"step": 2, "metrics": {"size/parameters": 1}}', "a metric must not begin with seconds/ or size/"),
        ('{"step": 2, "metrics": {"a": 1}, "checkpoint": 2}', "a checkpoint must be a folder"),
        ('{"step": 2, "metrics": {"a": 1}, "checkpoint": "a\\u0000"}', "a checkpoint must be a folder"),
        ('{"step": 2, "metrics": {"a": 1}, "checkpoint": "\\ud800"}', "a checkpoint must be a folder"),
        (
            '{"step": 2, "metrics": {"a": 1}, "attempt": "s-1.1"}',
            "a line must belong to the attempt s-0.1",
        ),
        ('{"step": 2, "metrics": {"a": 1}, "attempt": 7}', "a line must belong to the attempt s-0.1"),
    ],
)
def test_a_strange_report_is_a_failure_of_its_trial(runs: Runs, line: str, message: str) -> None:
    """One process reports all of it: what a script can write cannot raise anything but a refusal."""
    with pytest.raises(Refusal) as refusal:
        attempts.ScriptReport.read(line.encode(), -1, "s-0.1")
    outcome = failure_outcome(runs.function(""), refusal.value)
    assert (outcome.failure, outcome.done, outcome.metrics) == ("error", True, {})
    assert str(outcome.message).startswith(f"a report of the script: {message}")
    assert str(outcome.message).isprintable()
    json.dumps(outcome.to_result()).encode("utf-8")


def test_what_a_script_prints_last_is_a_message_that_can_be_stored(runs: Runs) -> None:
    """PostgreSQL takes no NUL, and no encoding a lone half of a pair."""
    text = """
    import sys
    sys.stdout.buffer.write(b"\\x00\\x1b[2J\\xff\\xed\\xa0\\x80 it failed\\n")
    sys.stdout.flush()
    sys.exit(3)
    """
    (outcome,) = runs.all(runs.command(text))
    assert outcome.failure == "error"
    assert str(outcome.message).endswith("it failed). See `sweep logs`.")
    assert str(outcome.message).isprintable()


def test_an_objective_that_is_not_a_number_at_first_is_a_failure_with_its_cause(runs: Runs) -> None:
    text = "def train(trial): trial.report(2, {'val/loss': float('nan')})"
    first = runs.own.advance(replace(runs.function(text), observed=("val/loss",)))
    judged = finite_or_failed(first, "val/loss")
    assert (judged.failure, judged.message, judged.done) == ("non-finite", "val/loss is nan", True)
    assert judged.metrics == {}


@pytest.mark.parametrize(
    "name", ["done", "step", "training", "queued", "outcome", "trial_id", "config", "attempt", "loan"]
)
def test_a_metric_named_like_a_key_of_the_service_changes_no_outcome(runs: Runs, name: str) -> None:
    text = f"def train(trial): trial.report(2, {{'val/loss': 1.0, {name!r}: 9.0}})"
    outcome = runs.own.advance(replace(runs.function(text), observed=("val/loss",)))
    assert (outcome.step, outcome.done, outcome.failure, outcome.metrics[name]) == (2, False, None, 9.0)
    assert Outcome.from_result(outcome.to_result()) == outcome


def test_a_report_after_the_last_step_is_left_out_and_answered(runs: Runs) -> None:
    """The trial is complete by then. The script is told to stop, and the log says what was left out."""
    text = """
    import json, os, time
    with open(os.environ["SWEEP_REPORTS"], "a") as file:
        for step in (6, 7):
            file.write(json.dumps({"step": step, "metrics": {"val/loss": step}}) + "\\n")
    while len(answers := open(os.environ["SWEEP_ANSWERS"]).read().splitlines()) < 2:
        time.sleep(0.01)
    print("answers:", answers)
    """
    (outcome,) = runs.all(runs.command(text))
    assert (outcome.step, outcome.done, outcome.metrics["val/loss"]) == (6, True, 6)
    assert "answers: ['stop 6', 'stop 7']" in runs.log
    assert "step 7: reported after the attempt had ended, and left out" in runs.log


# ---------------------------------------------------------------- answers and reports name what they are of


def test_every_answer_names_the_step_of_its_report(runs: Runs) -> None:
    text = """
    import os, sweep_client
    trial = sweep_client.trial()
    for step in (1, 4, 5):
        trial.report(step, {"val/loss": 1})
    print("answers:", open(os.environ["SWEEP_ANSWERS"]).read().splitlines())
    print("reports:", open(os.environ["SWEEP_REPORTS"]).readline())
    """
    outcomes = runs.all(runs.command(text))
    assert [outcome.step for outcome in outcomes] == [1, 4, 5, 5]
    assert "answers: ['continue 1', 'continue 4', 'continue 5']" in runs.log
    assert '"attempt": "s-0.1"}' in runs.log


def test_a_report_of_another_attempt_is_refused(runs: Runs) -> None:
    text = """
    import os, sweep_client
    trial = sweep_client.trial()
    trial._attempt = "s-7.1"
    trial.report(2, {"val/loss": 1})
    """
    (outcome,) = runs.all(runs.command(text))
    assert outcome.failure == "error"
    assert "a line must belong to the attempt s-0.1 (got one of 's-7.1')" in str(outcome.message)


def answered_client(folder: Path, *answers: str) -> Any:
    """Return the object of a trial for which answers have come already."""
    spec = importlib.util.spec_from_file_location(
        "sweep_client", processes.CLIENT / "sweep_client" / "__init__.py"
    )
    assert spec is not None
    assert spec.loader is not None
    client = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(client)
    (folder / "answers").write_text("".join(f"{answer}\n" for answer in answers))
    facts = {"params": {}, "seed": 0, "folder": str(folder), "resume": None, "start": 0, "steps": 900}
    files = {"reports": str(folder / "reports"), "answers": str(folder / "answers")}
    return client.Trial({**facts, **files, "interval": 1, "attempt": "s-0.1", "checkpoints": str(folder)})


@pytest.mark.parametrize("answer", ["continue 600", "stop 600", "continue", "stop", "go 500", "continue x"])
def test_an_answer_to_another_report_is_not_taken(tmp_path: Path, answer: str) -> None:
    trial = answered_client(tmp_path, answer)
    with pytest.raises(RuntimeError, match="the answer to the report of step 500 must be `continue 500`"):
        trial.report(500, {"a": 1.0})


def test_answers_to_earlier_reports_of_the_attempt_are_passed_over(tmp_path: Path) -> None:
    """A second `trial()` in a script began with the first line of the file, whatever report it answered."""
    trial = answered_client(tmp_path, "continue 400", "stop 450", "continue 500", "stop 600")
    assert trial.report(500, {"a": 1.0})
    assert not trial.report(600, {"a": 1.0})
    lines = [json.loads(line) for line in (tmp_path / "reports").read_text().splitlines()]
    assert [(line["attempt"], line["step"]) for line in lines] == [("s-0.1", 500), ("s-0.1", 600)]


def test_a_script_that_is_asked_to_leave_gets_the_answer_to_its_last_report(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its attempt has ended meanwhile: the answer does not come in advance, but names the report."""
    text = """
    import time
    def train(trial):
        trial.report(2, {"val/loss": 1.0})
        while not trial.stopping:
            time.sleep(0.01)
        print("goes on:", trial.report(3, {"val/loss": 1.0}))
    """
    assigned = runs.function(text)
    runs.own.advance(assigned)
    own = runs.own._attempt
    assert isinstance(own, attempts.ScriptAttempt)
    own._answer(2, go_on=True)
    until(lambda: (own._place.answers).read_text() == "continue 2\n")
    began = time.monotonic()
    runs.own.release()
    assert time.monotonic() - began < processes.GRACE
    assert "goes on: False" in runs.log
    assert "step 3: reported after the attempt had ended, and left out" in runs.log


def test_a_checkpoint_of_another_trial_is_not_resumed(runs: Runs) -> None:
    """Neither in the place of the recorded one, nor recorded as this trial's."""
    assigned = runs.function(FUNCTION)
    foreign = replace(assigned, trial_key="s-9", attempt_id="s-9.1", checkpoints=str(runs.folder / "other"))
    own = runs.own.advance(assigned).checkpoint
    runs.own.release()
    other = runs.own.advance(foreign).checkpoint
    runs.own.release()
    assert own is not None
    assert other is not None
    (recorded,) = runs.all(replace(assigned, resume=other))
    assert recorded.failure == "damaged checkpoint"
    assert "must be a checkpoint of s-0 (got one of s-9 at step 2)" in str(recorded.message)
    shutil.rmtree(own.path)
    shutil.copytree(other.path, own.path)
    (placed,) = runs.all(replace(assigned, resume=own))
    assert placed.failure == "damaged checkpoint"
    assert "must have SHA-256" in str(placed.message)


def test_folders_in_folders_without_end_are_counted_and_removed(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both go deeper than Python calls functions, than a process opens files, and than a path can name."""
    monkeypatch.setattr(processes, "DISK_SECONDS", 0.05)
    text = """
    import os, time
    from pathlib import Path
    def train(trial):
        Path("folder").write_text(str(trial.folder))
        os.chdir(trial.folder)
        for _ in range(1100):
            os.mkdir("a" * 40)
            os.chdir("a" * 40)
        time.sleep(60)
    """
    outcomes = runs.all(runs.function(text, disk=64 << 20))
    assert outcomes[-1].failure == "disk limit", outcomes
    assert not Path((runs.folder / "folder").read_text()).parent.exists()


def test_on_a_stop_request_a_trial_saves_and_leaves(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    import time
    def train(trial):
        trial.report(1, {"val/loss": 1.0})
        while not trial.stopping:
            time.sleep(0.01)
        assert not trial.report(2, {"val/loss": 0.5})
    """
    assigned = runs.function(text)
    runs.own.advance(assigned)
    later = iter([False])  # it comes when the report before has been answered
    monkeypatch.setattr(process, "stop_requested", lambda channel, attempt: next(later, True))
    outcome = runs.own.advance(assigned)
    assert (outcome.step, outcome.interrupted, outcome.done) == (2, True, True)


SLOW = """
import time
from pathlib import Path

def train(trial):
    for step in range(trial.start + 2, trial.steps + 1, 2):
        for _ in range(500):  # an epoch: it ends when the test says so, or after five seconds
            if trial.stopping or Path(f"go-{step}").exists():
                break
            time.sleep(0.01)
        if trial.stopping:
            time.sleep(0.5)
        if not trial.report(step, {"val/loss": 1 / step}):
            return
"""


def until_the_report(runs: Runs, assigned: Assignment) -> tuple[int, Outcome]:
    """Return the number of signs of life before the next report, and the report."""
    outcomes = [runs.own.advance(assigned)]
    while outcomes[-1].training:
        outcomes.append(runs.own.advance(assigned))
    return len(outcomes) - 1, outcomes[-1]


def test_a_long_epoch_gives_signs_of_life_and_reports_the_same(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch may take longer than the deadline after which a silent attempt is taken for hung."""
    monkeypatch.setattr(attempts, "SIGN_OF_LIFE", 0.05)
    assigned = runs.function(SLOW)
    for step in (2, 4, 6):
        for _ in range(3):
            sign = runs.own.advance(assigned)
            assert (sign.training, sign.queued, sign.done) == (True, False, False), sign
            assert (sign.step, sign.metrics, sign.checkpoint) == (step - 2, {}, None)
        (runs.folder / f"go-{step}").touch()
        _, report = until_the_report(runs, assigned)
        assert (report.step, report.metrics["val/loss"], report.failure) == (step, 1 / step, None)
    assert report.done


def test_a_stop_between_two_signs_of_life_is_asked_for_once_and_saves(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SIGN_OF_LIFE", 0.05)
    assigned = runs.function(SLOW)
    (runs.folder / "go-2").touch()
    assert until_the_report(runs, assigned)[1].step == 2
    assert runs.own.advance(assigned).training
    monkeypatch.setattr(process, "stop_requested", lambda channel, attempt: True)
    signs, outcome = until_the_report(runs, assigned)
    assert signs > 1, "the script takes half a second to leave"
    assert (outcome.step, outcome.interrupted, outcome.done) == (4, True, True)


def test_a_script_that_is_stuck_is_ended_by_its_minutes_although_it_lives(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SIGN_OF_LIFE", 0.05)
    stuck = runs.command("import time\ntime.sleep(600)", minutes=1 / 60)
    signs, outcome = until_the_report(runs, stuck)
    assert signs > 3
    assert outcome.failure == "time limit"


def test_a_script_whose_keeper_is_gone_gives_no_sign_of_life(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SIGN_OF_LIFE", 0.05)
    text = "import os, signal, time\ntime.sleep(0.5)\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(600)"
    signs, outcome = until_the_report(runs, runs.command(text))
    assert signs > 1
    assert "the process that keeps it was killed" in str(outcome.message)


def test_a_trial_that_was_asked_to_stop_before_it_began_is_not_started(runs: Runs) -> None:
    """Its driver may have dropped it: a checkpoint would have no row in the ledger."""
    assigned = runs.command("open('started', 'w')")
    with asked_since_the_last_look(assigned):
        outcome = runs.own.advance(assigned)
    assert (outcome.interrupted, outcome.done, outcome.failure) == (True, True, None)
    assert not (runs.folder / "started").exists()


def test_a_trial_that_is_stopped_before_its_first_report_has_saved_nothing(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that it was to go on from is not one of its own."""
    assigned = runs.function(FUNCTION)
    first = runs.own.advance(assigned)
    runs.own.release()
    asleep = runs.function("import time\ndef train(trial):\n    time.sleep(600)")
    monkeypatch.setattr(process, "stop_requested", lambda sweep, attempt: True)
    monkeypatch.setattr(process, "may_begin", lambda channel, attempt: True)  # the request comes later
    outcome = runs.own.advance(replace(asleep, resume=first.checkpoint))
    assert (outcome.interrupted, outcome.step, outcome.checkpoint) == (True, 2, None)


DEAF = """
import os, signal, subprocess, sys, tempfile, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:                       # a daemon, in a session of its own
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("daemon.pid", "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not os.path.exists("daemon.pid") or not open("daemon.pid").read():
    time.sleep(0.01)
open(os.environ["SWEEP_REPORTS"], "a").write('{"step": 1, "metrics": {"val/loss": 1}}\\n')
hoard = [bytes(1)]
while True:
    WORK
"""


def ended(runs: Runs) -> bool:
    """Return True if the daemon of `DEAF` is gone."""
    return not psutil.pid_exists(int((runs.folder / "daemon.pid").read_text()))


def test_nothing_outlives_an_attempt(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that ignores SIGTERM is killed, and so is a daemon that left its process group."""
    monkeypatch.setattr(processes, "GRACE", 0.5)
    assigned = runs.command(DEAF.replace("WORK", "time.sleep(1)"))
    assert runs.own.advance(assigned).step == 1
    assert not ended(runs)
    runs.own.release()
    assert ended(runs)


@pytest.fixture(params=["control group", "monitor"])
def bounded_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the keeper use control groups, which need rights, or do without."""
    if request.param == "monitor":
        monkeypatch.setattr(processes, "CONTROL_GROUPS", False)
    elif not can_create_groups():
        pytest.skip("needs the permission to create control groups")
    return str(request.param)


def can_create_groups() -> bool:
    groups = keepers.created_groups(os.getpid(), 1 << 30)
    able = any(group.bounds_memory for group in groups)
    for group in groups:
        group.remove()
    return able


def test_a_command_in_a_control_group_leaves_none_behind(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_create_groups():
        pytest.skip("needs the permission to create control groups")
    monkeypatch.setattr(processes, "GRACE", 0.2)
    assert runs.own.advance(runs.command(DEAF.replace("WORK", "time.sleep(1)"))).step == 1
    daemon = Path("/proc", (runs.folder / "daemon.pid").read_text())
    (name,) = set(re.findall(rf"{keepers.GROUP}\d+$", (daemon / "cgroup").read_text(), re.MULTILINE))
    groups = [group / name for group in keepers.own_groups()]
    assert any(group.is_dir() for group in groups)
    runs.own.release()
    assert not any(group.is_dir() for group in groups)


@pytest.mark.parametrize(
    ("printed", "limit", "told"),
    [
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB", None, "resources.gpu"),
        ("CUDA error: out of memory", 1 << 30, "resources.gpu"),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes.", 1 << 30, "resources.gpu"),
        ("RuntimeError: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`", None, "resources.gpu"),
        ("MemoryError", 1 << 30, "Raise resources.memory"),
        ("MemoryError", None, "resources.concurrent"),
    ],
)
def test_advice_about_memory_is_about_the_memory_that_is_full(
    printed: str, limit: int | None, told: str
) -> None:
    assert _limit_behind(printed) == "memory"
    refusal = str(_out_of_memory(printed, limit))
    assert told in refusal
    assert ("resources.memory" in refusal) is (told == "Raise resources.memory")


@pytest.mark.slow_after(1)
def test_a_limit_of_memory_ends_everything(runs: Runs, bounded_by: str) -> None:
    work = "hoard.append(bytearray(20 << 20)); time.sleep(0.01)"
    last = runs.all(runs.command(DEAF.replace("WORK", work), memory=300 << 20))[-1]
    assert last.failure == "out of memory"
    assert "resources.memory" in str(last.message)
    assert ended(runs)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("limit", "work", "cause", "message"),
    [
        ({"minutes": 1 / 60}, "time.sleep(0.1)", "time limit", "resources.minutes"),
        (
            {"disk": 30 << 20},  # files without a name take space, too
            "hoard.append(tempfile.TemporaryFile()); hoard[-1].write(bytes(1 << 20)); hoard[-1].flush()",
            "disk limit",
            "resources.disk",
        ),
        (
            {"disk": 30 << 20},
            "hoard.append(open(f\"{os.environ['SWEEP_FOLDER']}/{len(hoard)}\", 'wb').write(bytes(1 << 20)))",
            "disk limit",
            "resources.disk",
        ),
    ],
)
def test_a_limit_ends_everything(
    runs: Runs, limit: dict[str, Any], work: str, cause: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "DISK_SECONDS", 0.2)
    last = runs.all(runs.command(DEAF.replace("WORK", work), **limit))[-1]
    assert last.failure == cause
    assert message in str(last.message)
    assert ended(runs)


@pytest.mark.slow_after(1)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_limit_holds_although_another_process_has_the_output(
    runs: Runs, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script can hand its output to a process that it has not started, which must not be ended."""
    monkeypatch.setattr(processes, "LONGEST_END", 0.5)
    given: list[int] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(runs.folder / "other"))
        listener.listen()

        def take() -> None:
            connection, _ = listener.accept()
            with connection:
                given.extend(socket.recv_fds(connection, 1, 1)[1])
            while goes_on:
                try:
                    os.write(given[0], b"of another process\n")
                except OSError:
                    break
                time.sleep(0.01)

        other = threading.Thread(target=take, daemon=True)
        other.start()
        text = """
        import socket, time
        print("the last line of its own", flush=True)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect("other")
            socket.send_fds(connection, [b"x"], [2])
        time.sleep(600)
        """
        last = runs.all(runs.command(text, minutes=1 / 60))[-1]
        assert last.failure == "time limit"
        assert "the last line of its own" in runs.log
        other.join()
    os.close(given[0])


@pytest.mark.slow
def test_memory_that_forks_share_is_counted_once(runs: Runs, bounded_by: str) -> None:
    text = """
    import os, time
    shared = bytearray(os.urandom(1 << 20)) * 200
    children = [os.fork() for _ in range(3)]
    if 0 not in children:
        time.sleep(1.5)
        open(os.environ["SWEEP_REPORTS"], "a").write('{"step": 6, "metrics": {"val/loss": 1}}\\n')
    else:
        time.sleep(600)
    """
    (outcome,) = runs.all(runs.command(text, memory=500 << 20))
    assert (outcome.failure, outcome.step) == (None, 6), outcome.message


@pytest.mark.parametrize(
    "text", ["x = bytearray(8 << 30)", "raise MemoryError", "raise OSError(12, 'Cannot allocate memory')"]
)
def test_an_allocation_that_fails_is_out_of_memory(runs: Runs, text: str) -> None:
    """Such as one far above the limit, in one step."""
    last = runs.all(runs.command(text, memory=300 << 20))[-1]
    assert last.failure == "out of memory", last.message


@pytest.mark.parametrize(
    ("error", "memory", "must"),
    [
        (
            "RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')",
            300 << 20,
            "has run out of GPU memory",
        ),
        ("RuntimeError('RESOURCE_EXHAUSTED: Out of memory on the GPU')", None, "has run out of GPU memory"),
        ("MemoryError", None, "has run out of memory"),
        ("MemoryError", 300 << 20, "must not exceed resources.memory"),
    ],
)
def test_the_advice_about_memory_is_of_the_memory_that_lacks(
    runs: Runs, error: str, memory: int | None, must: str
) -> None:
    """And the log ends with it, not with the code of the service."""
    (last,) = runs.all(runs.function(f"def train(trial): raise {error}", memory=memory))
    assert last.failure == ("out of GPU memory" if "GPU" in must else "out of memory")
    assert must in str(last.message)
    assert ("Raise resources.memory" in str(last.message)) == ("resources.memory" in must)
    assert runs.log.count("Traceback") == 1
    assert must in runs.log.splitlines()[-1]


def test_what_threads_only_reserve_is_no_memory(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each processor of a large machine has a thread, whose stack and buffers are hardly touched."""
    monkeypatch.setattr(processes, "CONTROL_GROUPS", False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    text = """
    import mmap, os
    reserved = [mmap.mmap(-1, 48 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(64)]
    open(os.environ["SWEEP_REPORTS"], "a").write('{"step": 6, "metrics": {"val/loss": 1}}\\n')
    """
    (outcome,) = runs.all(runs.command(text, memory=300 << 20))
    assert (outcome.failure, outcome.step) == (None, 6), outcome.message


def test_a_checkpoint_above_the_limit_is_not_read(runs: Runs) -> None:
    text = """
    def train(trial):
        for name in ("model", "moments"):
            with open(trial.folder / name, "wb") as file:
                file.truncate(40 << 20)      # a hole, which takes no space on the disk
        trial.report(1, {"val/loss": 1}, checkpoint=trial.folder)
    """
    outcomes = runs.all(runs.function(text, disk=64 << 20))
    assert outcomes[-1].failure == "disk limit"
    assert "resources.disk" in str(outcomes[-1].message)


def test_a_file_above_the_limit_cannot_be_written(runs: Runs) -> None:
    text = """
    def train(trial):
        with open(trial.folder / "model", "wb") as file:
            file.truncate(1 << 40)
    """
    outcomes = runs.all(runs.function(text, disk=64 << 20))
    assert outcomes[-1].failure == "disk limit"


def test_temporary_files_are_among_those_that_are_counted_and_removed(runs: Runs) -> None:
    text = """
    import os, tempfile
    _, name = tempfile.mkstemp()
    print("wrote", name)
    open(os.environ["SWEEP_REPORTS"], "a").write('{"step": 6, "metrics": {"val/loss": 1}}\\n')
    """
    runs.all(runs.command(text))
    name = Path(runs.log.rpartition("wrote ")[2].split()[0])
    assert name.parent.parent.name.startswith("sweep-trial-")
    assert not name.exists()


BOMB = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(os.environ["SWEEP_REPORTS"], "a") as file:
    file.write('{"step": 1, "metrics": {"val/loss": 1}}\\n')
pids = open("pids", "a")
while os.path.getsize("pids") < MOST * 8:       # each process goes on forking, and leaves its parent
    if os.fork() == 0:
        os.setsid()
        pids.write(f"{os.getpid():7d}\\n")
        pids.flush()
        if os.fork():
            os._exit(0)
    time.sleep(0.002)
time.sleep(600)
"""


def test_a_fork_bomb_is_killed_completely(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, bounded_by: str
) -> None:
    """It forks while it is killed."""
    monkeypatch.setattr(processes, "GRACE", 0.2)
    assigned = runs.command(BOMB.replace("MOST", "400"))
    assert runs.own.advance(assigned).step == 1
    until(lambda: (runs.folder / "pids").stat().st_size > 8 * 60)
    runs.own.release()
    left = [one.pid for one in psutil.process_iter() if _works_in(one, runs.folder)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def _works_in(one: psutil.Process, folder: Path) -> bool:
    try:
        return one.cwd() == str(folder)
    except psutil.Error:
        return False


WORKER = """
import pickle, sys, time
from orchestrator.scripts.script_attempt import OwnProcess
assigned = pickle.load(open(sys.argv[1], "rb"))
OwnProcess().advance(assigned)
print("reported", flush=True)
time.sleep(600)
"""


def test_a_script_ends_with_a_killed_worker(runs: Runs) -> None:
    file = runs.folder / "assignment"
    file.write_bytes(pickle.dumps(runs.command(DEAF.replace("WORK", "time.sleep(1)"))))
    temporary = runs.folder / "temporary"
    temporary.mkdir()
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(file)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "reported\n"
    assert any(temporary.iterdir())
    os.kill(worker.pid, signal.SIGKILL)
    worker.communicate()
    until(lambda: ended(runs))
    until(lambda: not any(temporary.iterdir()))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_program_in_c(runs: Runs) -> None:
    source = r"""
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/stat.h>
    int main(int count, char **words) {
        double rate = atof(words[1]), loss = 1;
        char path[4096];
        FILE *file;
        if (*getenv("SWEEP_RESUME")) {
            snprintf(path, sizeof path, "%s/loss", getenv("SWEEP_RESUME"));
            file = fopen(path, "r");
            if (!file || fscanf(file, "%lf", &loss) != 1) return 2;
            fclose(file);
        }
        for (int step = atoi(getenv("SWEEP_STEP")) + 1; step <= atoi(getenv("SWEEP_STEPS")); step++) {
            loss *= rate;
            snprintf(path, sizeof path, "%s/step-%d", getenv("SWEEP_CHECKPOINT"), step);
            mkdir(path, 0700);
            snprintf(path, sizeof path, "%s/step-%d/loss", getenv("SWEEP_CHECKPOINT"), step);
            file = fopen(path, "w");
            fprintf(file, "%.17g", loss);
            fclose(file);
            file = fopen(getenv("SWEEP_REPORTS"), "a");
            fprintf(file, "{\"step\": %d, \"metrics\": {\"val/loss\": %.17g}, \"checkpoint\": \"step-%d\"}\n",
                    step, loss, step);
            fclose(file);
        }
        return 0;
    }
    """
    (runs.folder / "train.c").write_text(source)
    subprocess.run(["cc", "train.c", "-o", "train"], cwd=runs.folder, check=True)
    assigned = runs.command("", steps=4)
    settings = replace(assigned.settings, command=("./train", "{rate}"))  # type: ignore[type-var]
    assigned = replace(assigned, settings=settings)
    first = runs.own.advance(assigned)
    runs.own.release()
    rest = runs.all(replace(assigned, resume=first.checkpoint))
    assert [outcome.metrics["val/loss"] for outcome in [first, *rest]] == [0.5, 0.25, 0.125, 0.0625]


@pytest.mark.parametrize("named", ["link/run", "link"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_behind_a_link_is_no_checkpoint(runs: Runs, named: str, replaced: bool) -> None:
    """What is elsewhere is neither copied nor removed."""
    outside = runs.folder / "outside" / "run"
    outside.mkdir(parents=True)
    (outside / "model").write_text("precious")
    text = """
    import json, os, sys
    checkpoints, outside, named = os.environ["SWEEP_CHECKPOINT"], sys.argv[1], sys.argv[2]
    if sys.argv[3:]:
        os.rmdir(checkpoints)
        os.symlink(outside, checkpoints)
        named = named.replace("link/", "").replace("link", "run")
    else:
        os.symlink(outside, f"{checkpoints}/link")
    line = json.dumps({"step": 1, "metrics": {"val/loss": 1}, "checkpoint": named})
    open(os.environ["SWEEP_REPORTS"], "a").write(f"{line}\\n")
    """
    outcomes = runs.all(runs.command(text, str(outside.parent), named, *["replaced"] * replaced))
    assert "must be a folder inside SWEEP_CHECKPOINT" in str(outcomes[-1].message)
    assert outcomes[-1].checkpoint is None
    assert (outside / "model").read_text() == "precious"


def test_links_in_a_checkpoint_are_followed_inside_it_alone(runs: Runs) -> None:
    """What is left out is in the trial's log."""
    text = """
    import os
    checkpoint = os.environ["SWEEP_CHECKPOINT"] + "/next"
    os.mkdir(checkpoint)
    open(f"{checkpoint}/epoch-2", "w").write("weights")
    os.symlink("epoch-2", f"{checkpoint}/last")
    os.symlink("/etc/hostname", f"{checkpoint}/secret")
    os.symlink("/etc", f"{checkpoint}/folder")
    line = '{"step": 6, "metrics": {"val/loss": 1}, "checkpoint": "next"}'
    open(os.environ["SWEEP_REPORTS"], "a").write(f"{line}\\n")
    """
    (first,) = runs.all(runs.command(text))
    assert first.checkpoint is not None
    files, _ = checkpoint.load(Path(first.checkpoint.path), first.checkpoint.digest)
    assert {name: content.tobytes() for name, content in files.items()} == dict.fromkeys(
        ("epoch-2", "last"), b"weights"
    )
    assert "folder and secret are links to what is outside the checkpoint, and left out" in runs.log


@pytest.mark.parametrize("made", ["os.symlink('/dev/zero', path)", "os.mkfifo(path)", "os.mkdir(path)"])
def test_reports_are_read_from_a_file_alone(runs: Runs, made: str) -> None:
    text = f"""
    import os, time
    path = os.environ["SWEEP_REPORTS"]
    os.remove(path)
    {made}
    time.sleep(20)
    """
    (outcome,) = runs.all(runs.command(text))
    assert "SWEEP_REPORTS must be the file that the script was given" in str(outcome.message)


def test_a_line_that_does_not_end_is_refused(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "LONGEST_LINE", 1000)
    text = """
    import os, time
    with open(os.environ["SWEEP_REPORTS"], "a") as file:
        file.write('{"step": 1, "metrics": {"val/loss": 1}}\\n' + "x" * 5000)
        file.flush()
        time.sleep(20)
    """
    first, last = runs.all(runs.command(text))
    assert (first.step, first.failure) == (1, None)
    assert "a line must be shorter than 1000 bytes" in str(last.message)


@pytest.mark.slow
def test_an_output_without_lines_or_end_fills_neither_memory_nor_disk(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is too long is several, and after a while nothing more is kept."""
    monkeypatch.setattr(processes, "LONGEST_LINE", 1000)
    monkeypatch.setattr(processes, "MOST_PRINTED", 10_000)
    text = """
    import os
    print("x" * 1_000_000, end="")
    print("the end")
    open(os.environ["SWEEP_REPORTS"], "a").write('{"step": 6, "metrics": {"val/loss": 1}}\\n')
    """
    (outcome,) = runs.all(runs.command(text))
    assert (outcome.step, outcome.failure) == (6, None)
    lines = runs.log.splitlines()
    assert max(map(len, lines)) < 1100
    assert len(runs.log) < 12_000
    assert any("has printed more than 10000 bytes; the rest is left out" in line for line in lines)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("sign", ["SIGKILL", "SIGSTOP"])
def test_nothing_outlives_an_attempt_whose_keeper_is_attacked(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    """Its parent is the keeper, which a script may kill or stop, as it runs as the same user."""
    for module in (processes, attempts):
        monkeypatch.setattr(module, "GRACE", 0.2)
    monkeypatch.setattr(processes, "LONGEST_END", 0.5)
    text = DEAF.replace("WORK", f"os.kill(os.getppid(), signal.{sign}); time.sleep(600)")
    assert runs.own.advance(runs.command(text)).step == 1
    runs.own.release()
    left = [one.pid for one in psutil.process_iter() if _works_in(one, runs.folder)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    until(lambda: ended(runs))


def test_sigterm_ends_a_script_that_does_not_handle_it(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the keeper ignores, the script does not: it need not be waited for and killed."""
    text = """
    import os, time
    open(os.environ["SWEEP_REPORTS"], "a").write('{"step": 1, "metrics": {"val/loss": 1}}\\n')
    time.sleep(600)
    """
    assert runs.own.advance(runs.command(text)).step == 1
    monkeypatch.setattr(process, "stop_requested", lambda channel, attempt: True)
    began = time.monotonic()
    outcome = runs.own.advance(runs.command(text))
    assert (outcome.interrupted, outcome.step) == (True, 1)
    assert time.monotonic() - began < processes.GRACE / 2


def test_a_script_that_prints_is_not_slowed(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 lines, each written at once, in an environment with a hundred secrets."""
    for number in range(100):
        monkeypatch.setenv(f"SECRET_{number}", f"value-{number}-of-a-secret")
    text = """
    import time

    def train(trial):
        began = time.perf_counter()
        for number in range(20_000):
            print("line", number)
        trial.report(6, {"val/loss": time.perf_counter() - began})
    """
    (outcome,) = runs.all(runs.function(text))
    assert outcome.metrics["val/loss"] < 5, "on a machine that has nothing else to do it takes 0.3 s"
    assert [line.partition(": ")[2] for line in runs.log.splitlines() if ": line " in line] == [
        f"line {number}" for number in range(20_000)
    ]


def printed_in(log: str) -> list[str]:
    """Return what a script has printed: the lines of a log that are not its worker's own."""
    lines = [line.partition(": ")[2] for line in log.split("\n")[:-1]]
    own = ("started at", "not passed on", "its code has", "step ")
    return [line for line in lines if not line.startswith(own)]


def test_a_line_that_is_drawn_again_and_again_is_one_with_its_last_state(runs: Runs) -> None:
    text = """
    import sys, time

    def train(trial):
        for epoch in range(2):
            for step in range(500):
                sys.stderr.write(f"\\repoch {epoch}: {step}/500")
                sys.stderr.flush()
            sys.stderr.write("\\n")
        time.sleep(0.1)
        print("an end of line of another system\\r")
        trial.report(6, {"val/loss": 1.0})
        sys.stderr.write("no end\\rat all")
    """
    runs.all(runs.function(text))
    assert printed_in(runs.log) == [
        "epoch 0: 499/500",
        "epoch 1: 499/500",
        "an end of line of another system",
        "at all",
    ]


def test_a_line_that_is_drawn_for_long_is_shown_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = processes.OutputLines()
    assert stream.lines(b"\r1 of 9\r2 of 9") == []
    monkeypatch.setattr(processes, "DRAWN_SECONDS", 0.0)
    assert stream.lines(b"\r3 of 9") == [b"2 of 9"]
    assert stream.lines(b"\r" * 10 * processes.LONGEST_LINE) == []
    assert stream.rest() == [b"3 of 9"]


def test_lines_are_not_torn(runs: Runs) -> None:
    """Neither where two outputs come in turn, nor in a character of several bytes, nor at a form feed."""
    text = """
    import os, sys, time

    def train(trial):
        pieces = [(1, b"one "), (2, b"other "), (1, b"whole \\xe2"), (2, b"whole\\n"), (1, b"\\x82\\xac\\n")]
        for stream, piece in pieces:
            os.write(stream, piece)
            time.sleep(0.05)
        print("a\\x0cb\\u2028c\\n\\nafter an empty line")
        trial.report(6, {"val/loss": 1.0})
        os.write(1, b"without an end")
    """
    runs.all(runs.function(text))
    assert printed_in(runs.log) == [
        "other whole",
        "one whole \u20ac",
        "a\x0cb\u2028c",
        "",
        "after an empty line",
        "without an end",
    ]


def test_a_line_that_is_too_long_is_divided_between_two_characters() -> None:
    text = "\u20ac" * processes.LONGEST_LINE
    parts = processes.OutputLines().lines(text.encode() + b"\n")
    assert "".join(part.decode() for part in parts) == text
    assert max(map(len, parts)) <= processes.LONGEST_LINE


def test_the_end_of_an_output_that_was_cut_is_in_the_log(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What short lines take with their times counts, and the traceback at the end tells what went wrong."""
    monkeypatch.setattr(processes, "MOST_PRINTED", 100_000)
    text = """
    def train(trial):
        for number in range(100_000):
            print(number % 10)
        raise ValueError("at the end")
    """
    (outcome,) = runs.all(runs.function(text))
    assert "ValueError: at the end" in str(outcome.message)
    assert len(runs.log) < 120_000
    assert "the rest is left out" in runs.log
    assert runs.log.count("ValueError: at the end") > 1


def test_a_script_goes_on_although_its_log_cannot_be_written(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, text: str) -> None:
        if "line" in text:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(TrialLog, "write", full)
    text = """
    def train(trial):
        for number in range(100_000):
            print("line", number)
        trial.report(6, {"val/loss": 1.0})
    """
    (outcome,) = runs.all(runs.function(text))
    assert outcome.failure is None


# ------------------------------------------------------------------ after the last report


def test_work_after_the_last_report_is_done(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test, an export: the trial is complete when its process has ended, and lives until then."""
    monkeypatch.setattr(attempts, "SIGN_OF_LIFE", 0.3)
    monkeypatch.setattr(attempts, "GRACE", 0.1)
    text = """
    import time
    from pathlib import Path

    def train(trial):
        assert not trial.report(6, {"val/loss": 1.0})
        time.sleep(1.5)
        Path("exported").touch()
        raise RuntimeError("the upload has failed")
    """
    *signs, last = runs.all(runs.function(text))
    assert (runs.folder / "exported").exists()
    assert signs
    assert all(sign.training and not sign.done for sign in signs)
    assert (last.step, last.done, last.failure, last.metrics["val/loss"]) == (6, True, None, 1.0)
    assert "ended after its last report with exit code 1: RuntimeError: the upload has failed" in runs.log


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("minutes", "in_log"),
    [
        (None, "after its last report, and is ended; resources.minutes lets it go on for longer"),
        (0.02, "ended after its last report: the script must not exceed resources.minutes"),
    ],
)
def test_work_after_the_last_report_has_an_end(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, minutes: float | None, in_log: str
) -> None:
    monkeypatch.setattr(attempts, "FINISHING_SECONDS", 0.5)
    text = """
    import time

    def train(trial):
        trial.report(6, {"val/loss": 1.0})
        while True:
            time.sleep(1)
    """
    monkeypatch.setattr(processes, "GRACE", 0.2)
    (last,) = runs.all(runs.function(text, minutes=minutes))
    assert (last.step, last.done, last.failure) == (6, True, None)
    assert in_log in runs.log


# ------------------------------------------------------------------ the process of a function


def test_a_function_sees_the_process_of_its_own_file(runs: Runs) -> None:
    """Its options have their defaults, and what it spawns finds its module."""
    (runs.folder / "beside.py").write_text("VALUE = 3")
    text = """
    import argparse, multiprocessing, sys
    import beside

    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=0.5)
    options = parser.parse_args()

    def work(queue):
        queue.put(options.rate)

    def train(trial):
        print("argv", sys.argv, "path", sys.path[0], "main", sys.modules["__main__"].__file__)
        print("of the service", [name for name in sys.modules if name.startswith("orchestrator")])
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        rate = queue.get(timeout=60)
        process.join()
        trial.report(6, {"val/loss": rate})
    """
    (outcome,) = runs.all(runs.function(text))
    assert outcome.metrics["val/loss"] == 0.5
    file = runs.folder / "train.py"
    assert f"argv ['{file}'] path {runs.folder} main {file}" in runs.log
    assert "of the service []" in runs.log


def test_a_forked_child_ends_at_sigterm_as_without_the_service(runs: Runs) -> None:
    text = """
    import multiprocessing, time

    def train(trial):
        context = multiprocessing.get_context("fork")
        child = context.Process(target=time.sleep, args=(60,))
        child.start()
        time.sleep(0.2)
        child.terminate()
        child.join(10)
        trial.report(6, {"val/loss": child.exitcode or 0})
    """
    (outcome,) = runs.all(runs.function(text))
    assert outcome.metrics["val/loss"] == -15


@pytest.mark.parametrize(
    "environment",
    [
        {"RANK": "1", "WORLD_SIZE": "2"},
        {"LOCAL_RANK": "1", "WORLD_SIZE": "2"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
    ],
)
def test_of_processes_that_train_together_the_first_reports(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    """The others get the same answers. What the worker itself was started by does not count."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    text = f"""
    import os, subprocess, sys
    import sweep_client

    if "child" not in sys.argv:
        ranks = [{{**os.environ, **{environment!r}}}, os.environ]
        children = [subprocess.Popen([sys.executable, __file__, "child"], env=each) for each in ranks]
        sys.exit(max(child.wait() for child in children))
    trial = sweep_client.trial()
    for step in (2, 4, 6):
        goes_on = trial.report(step, {{"val/loss": 1.0 / step}}, checkpoint=trial.folder)
        print("answer", step, goes_on)
    """
    outcomes = runs.all(runs.command(text))
    assert [(one.step, one.failure) for one in outcomes] == [(2, None), (4, None), (6, None)]
    for answer in ("2 True", "4 True", "6 False"):
        assert runs.log.count(f"answer {answer}") == 2


# ------------------------------------------------------------------ checkpoints of files


SAVES_AND_RESUMES = """
import json, os, stat
from pathlib import Path

def seen(folder):
    for path in sorted(Path(folder).rglob("*")):
        facts = path.lstat()
        content = path.read_text() if path.is_file() else None
        yield os.fsencode(path.relative_to(folder)).hex(), oct(facts.st_mode), facts.st_mtime_ns, content

def train(trial):
    if trial.resume is None:
        folder = PLACE
        folder.mkdir(exist_ok=True)
        MAKE
        print("SAVED", list(seen(folder)))
    else:
        print("BACK", list(seen(trial.resume)))
        folder = None
    for step in range(trial.start + 1, 3):
        trial.report(step, {"val/loss": 1.0}, checkpoint=folder)
"""
SAVED_NAMES = """
        names = [b"state", b"state.npy", b"state.npy.npy", b"file", b"allow_pickle", b"odd \\xff", b"a\\nb",
                 b"a\\\\b", b"arr_0", b" ", b"\\xc3\\xa9", b"n" * 250]
        for name in names:
            Path(folder, os.fsdecode(name)).write_bytes(b"of " + name.hex().encode())
"""
SAVED_ATTRIBUTES = """
        (folder / "empty" / "below").mkdir(parents=True)
        for number in (9, 10, 11):
            path = folder / f"epoch-{number}.pt"
            path.write_text(path.name)
            os.utime(path, ns=(1, 10**18 + number))
        path.chmod(0o540)
        (folder / "closed").mkdir()
        (folder / "closed" / "more").write_text("more")
        (folder / "closed").chmod(0o700)
        os.utime(folder / "closed", ns=(1, 10**18))
"""


@pytest.mark.parametrize("place", ["trial.folder / 'own'", "Path(os.environ['TMPDIR'], 'other')"])
@pytest.mark.parametrize("make", [SAVED_NAMES, SAVED_ATTRIBUTES])
def test_a_checkpoint_comes_back_as_it_was_saved(runs: Runs, make: str, place: str) -> None:
    """Each file with its own content, whatever its name means to an archive; times, modes and folders too."""
    text = SAVES_AND_RESUMES.replace("MAKE", make.strip()).replace("PLACE", place)
    assigned = runs.function(text, steps=2, interval=1)
    first = runs.own.advance(assigned)
    assert first.failure is None, first.message
    runs.own.release()
    (last,) = runs.all(replace(assigned, resume=first.checkpoint))
    assert last.failure is None, last.message
    (saved,) = re.findall("SAVED (.*)", runs.log)
    (back,) = re.findall("BACK (.*)", runs.log)
    assert back == saved


def test_what_is_no_file_of_a_checkpoint_is_left_out_and_named(runs: Runs) -> None:
    text = """
    import os, socket
    from pathlib import Path

    def train(trial):
        os.chdir(trial.folder)
        for at, place in enumerate([trial.folder / "own", Path(os.environ["TMPDIR"], "other")]):
            (place / "below").mkdir(parents=True)
            os.chdir(place)
            Path("state").write_text("of the checkpoint")
            for name, target in [("gone", "nowhere"), ("absolute", "/etc/hostname"), ("home", "/etc"),
                                 ("up", "../../.."), ("loop", "loop"), ("folder", "below"),
                                 ("inside", "state"), ("whole", place / "state")]:
                Path(name).symlink_to(target)
            os.mkfifo("pipe")
            socket.socket(socket.AF_UNIX).bind("socket")
            trial.report(2 + at, {"val/loss": 1.0}, checkpoint=place)
    """
    outcomes = runs.all(runs.function(text))
    assert [one.failure for one in outcomes] == [None, None, None]
    for outcome in outcomes[:2]:
        assert files_of(outcome) == dict.fromkeys(("state", "inside", "whole"), b"of the checkpoint")
    outside = "absolute and gone and home and loop and up are links to what is outside the checkpoint"
    assert runs.log.count(f"{outside}, and left out of it") == 2
    assert "folder and pipe and socket are links to folders, no files, or gone, and left out" in runs.log
    assert "pipe is not a file, and is left out of the checkpoint" in runs.log


def test_a_large_checkpoint_is_never_in_memory(runs: Runs) -> None:
    """Neither when it is saved, nor when it is checked, copied or restored."""
    text = """
    def train(trial):
        if trial.resume is None:
            with (trial.folder / "weights").open("wb") as file:
                for _ in range(100):
                    file.write(bytes(1 << 20))
        trial.report(trial.start + 2, {"val/loss": 1.0}, checkpoint=trial.folder)
        trial.report(trial.start + 4, {"val/loss": 1.0})
    """
    tracemalloc.start()
    try:
        assigned = runs.function(text)
        first = runs.own.advance(assigned)
        assert first.checkpoint is not None
        runs.own.release()
        runs.own.advance(replace(assigned, resume=first.checkpoint))
        folder = Path(first.checkpoint.path)
        checkpoint.copy(folder, runs.folder / "copy" / "step-1-1", first.checkpoint.digest, "s-1")
        assert checkpoint.is_whole(folder, first.checkpoint.digest)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert first.checkpoint.size > 100 << 20
    assert peak < 20 << 20


def test_a_file_with_a_hole_counts_with_its_length(runs: Runs) -> None:
    text = """
    import os

    def train(trial):
        os.truncate(os.open(trial.folder / "sparse", os.O_CREAT | os.O_WRONLY), 1 << 25)
        trial.report(2, {"val/loss": 1.0}, checkpoint=trial.folder)
    """
    (outcome,) = runs.all(runs.function(text, disk=1 << 24))
    assert outcome.failure == "disk limit"


def test_a_file_that_becomes_shorter_while_it_is_copied_fails_the_report(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that becomes longer is copied as long as it was, and one that vanishes is left out and named."""
    own_file = reported_folder.own_file

    @contextmanager
    def changed(name: str, flags: int, folder: int | None = None) -> Iterator[Any]:
        if name == "vanishing":
            os.unlink(name, dir_fd=folder)
        with own_file(name, flags, folder) as file:
            yield file

    add = checkpoint.Packing.add

    def added(self: checkpoint.Packing, name: str, file: Any, facts: os.stat_result) -> None:
        if name in ("shrinking", "growing"):
            os.truncate(f"/proc/self/fd/{file.fileno()}", {"shrinking": 2, "growing": 9}[name])
        add(self, name, file, facts)

    monkeypatch.setattr(reported_folder, "own_file", changed)
    monkeypatch.setattr(checkpoint.Packing, "add", added)
    text = """
    def train(trial):
        for name in ("growing", "vanishing", "state"):
            (trial.folder / name).write_text("12345")
        trial.report(2, {"val/loss": 1.0}, checkpoint=trial.folder)
        (trial.folder / "shrinking").write_text("12345")
        trial.report(4, {"val/loss": 1.0}, checkpoint=trial.folder)
    """
    first, last = runs.all(runs.function(text))
    assert files_of(first) == {"growing": b"12345", "state": b"12345"}
    assert "vanishing are links to folders, no files, or gone, and left out of the checkpoint" in runs.log
    assert "must not be changed before its report is answered (got shrinking: 2 bytes, of 5" in str(
        last.message
    )


# ------------------------------------------------------------------ metrics


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("true", "a line must be {"),
        ('"0.5"', "a line must be {"),
        ("1e400", "a line must be {"),
        (str(2**53 + 1), "a metric must be a number that 64 bits of floating point hold"),
    ],
)
def test_a_metric_is_a_number_with_all_its_digits(value: str, message: str) -> None:
    with pytest.raises(Refusal, match=re.escape(message)):
        attempts.ScriptReport.read(f'{{"step": 1, "metrics": {{"a": {value}}}}}'.encode(), 0, "s-0.1")


@pytest.mark.parametrize("value", [-0.0, 2.0**53, 5e-324, 1.7976931348623157e308, 0.1, -float("inf")])
def test_a_metric_keeps_its_value(value: float) -> None:
    line = json.dumps({"step": 1, "metrics": {"a": value}}).encode()
    assert repr(attempts.ScriptReport.read(line, 0, "s-0.1").metrics["a"]) == repr(value)


def test_what_the_client_is_given_is_sent_with_all_its_digits(runs: Runs) -> None:
    text = """
    import numpy

    def train(trial):
        metrics = {"true": True, "half": numpy.float32(0.5), "large": numpy.int64(2**53), "zero": -0.0}
        trial.report(2, {"val/loss": 1, **metrics})
        try:
            trial.report(4, {"val/loss": "0.5"})
        except TypeError as error:
            print("refused:", error)
        trial.report(4, {"val/loss": 2**53 + 1})
    """
    first, last = runs.all(runs.function(text))
    values = {name: repr(first.metrics[name]) for name in ("true", "half", "large", "zero")}
    assert values == {"true": "1.0", "half": "0.5", "large": "9007199254740992.0", "zero": "-0.0"}
    assert "refused: could not convert the text '0.5' of the metric val/loss to a number" in runs.log
    assert "got 'val/loss': 9007199254740993" in str(last.message)


@pytest.mark.slow
def test_a_metric_may_be_an_array_of_one_number(runs: Runs) -> None:
    """NumPy and JAX have arrays without axes; one of several numbers is refused with the metric's name."""
    text = """
    import jax.numpy
    import numpy

    def train(trial):
        arrays = {"zero-d": numpy.array(0.5), "one": numpy.array([3]), "jax": jax.numpy.float32(0.25)}
        trial.report(2, {"val/loss": 1.0, **arrays})
        for value in (numpy.zeros(2), jax.numpy.zeros((2, 3)), None, [0.5]):
            try:
                trial.report(4, {"val/loss": value})
            except TypeError as error:
                print("refused:", error)
        trial.report(6, {"val/loss": 1.0})
    """
    first, last = runs.all(runs.function(text))
    assert [first.metrics[name] for name in ("zero-d", "one", "jax")] == [0.5, 3.0, 0.25]
    assert "refused: the metric val/loss must be one number (got an array of shape (2,))" in runs.log
    assert "refused: the metric val/loss must be one number (got an array of shape (2, 3))" in runs.log
    assert "refused: the metric val/loss must be a number (got None, a NoneType)" in runs.log
    assert "refused: the metric val/loss must be a number (got [0.5], a list)" in runs.log
    assert (last.step, last.failure) == (6, None)


def test_reports_may_begin_at_step_0(runs: Runs) -> None:
    text = """
    def train(trial):
        for step in (0, 3, 6):
            trial.report(step, {"val/loss": step + 0.5})
    """
    outcomes = runs.all(runs.function(text))
    assert [(outcome.step, outcome.metrics["val/loss"]) for outcome in outcomes] == [
        (0, 0.5),
        (3, 3.5),
        (6, 6.5),
    ]


def test_a_second_report_of_a_step_is_refused_and_the_trial_goes_on(runs: Runs) -> None:
    text = """
    def train(trial):
        for step, loss in ((2, 1.0), (2, 9.0), (4, 2.0), (4, 9.0), (6, 3.0)):
            assert trial.report(step, {"val/loss": loss}) or step == 6
    """
    outcomes = runs.all(runs.function(text))
    assert [outcome.metrics["val/loss"] for outcome in outcomes] == [1.0, 2.0, 3.0]
    assert "step 2 was reported before: this report of it is refused" in runs.log
    assert outcomes[-1].failure is None


def test_a_resumed_script_may_report_the_step_of_its_checkpoint_again(runs: Runs) -> None:
    text = """
    def train(trial):
        for step in range(trial.start, 7, 2):
            if step:
                folder = trial.folder / "state"
                folder.mkdir(exist_ok=True)
                trial.report(step, {"val/loss": float(step)}, checkpoint=folder)
    """
    assigned = runs.function(text)
    first = runs.own.advance(assigned)
    runs.own.release()
    again = replace(assigned, attempt_id=f"{assigned.trial_key}.2", resume=first.checkpoint)
    assert [outcome.step for outcome in runs.all(again)] == [4, 6]
    assert "step 2 was reported before" in runs.log


def test_metrics_beyond_a_number_of_names_are_left_out_and_the_trial_goes_on(runs: Runs) -> None:
    text = """
    def train(trial):
        for step in (2, 4, 6):
            new = {f"{'n' * 200} {step} {number}": number for number in range(4000)}
            trial.report(step, {**new, "val/loss": step})
    """
    outcomes = runs.all(replace(runs.function(text), observed=("val/loss",)))
    assert [(one.step, one.metrics["val/loss"], one.failure) for one in outcomes] == [
        (2, 2.0, None),
        (4, 4.0, None),
        (6, 6.0, None),
    ]
    measured = {"seconds/train", "seconds/evaluate"}
    assert len({name for one in outcomes for name in one.metrics} - measured) == attempts.MOST_METRICS
    assert runs.log.count("metrics beyond the first 1000 are not recorded: n") == 1


@pytest.mark.parametrize("name", ["a b/c.d:e%f", "n" * 250, "time_total_s", "epoch", "best", "True", "é"])
def test_a_metric_may_have_any_name_that_can_be_printed(runs: Runs, name: str) -> None:
    text = f"def train(trial): trial.report(2, {{'val/loss': 1.0, {name!r}: 9.0}})"
    outcome = runs.own.advance(runs.function(text))
    assert (outcome.failure, outcome.metrics[name]) == (None, 9.0)
    assert Outcome.from_result(outcome.to_result()) == outcome
