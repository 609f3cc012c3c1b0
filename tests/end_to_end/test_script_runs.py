"""Functions and commands that call `mlflow.log_*` themselves, with an MLflow server that is there or away."""

from __future__ import annotations

import csv
import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mlflow
import mlflow.pyfunc
import mlflow.sklearn
import psutil
import pytest
import requests
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from orchestrator.tracking.address import environment
from tests.end_to_end.commands import Commands, wait_for

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(600)]

TRAINING = """
import mlflow

def train(trial):
    mlflow.log_text(str(trial.params), "notes.txt")
    for step in range(trial.start + 1, trial.steps + 1):
        mlflow.log_metric("gradient", trial.params["rate"] * step, step=step)
        mlflow.log_metric("looks", 1)  # at step 0 each time
        if not trial.report(step, {"val/loss": trial.params["rate"] / step}):
            return
"""
SCRIPT = f"""{TRAINING}
import sweep_client
train(sweep_client.trial())
"""
FILE = """
trainable: {TRAINABLE, mlflow: true}
search: {rate: {uniform: [0.1, 0.5]}}
training: {steps: 3, interval: 1}
objective: {minimize: val/loss}
sampler: {random: {seed: 1}}
scheduler: none
budget: {trials: 2}
"""
KINDS = {
    "function": ("function: train.py:train", TRAINING),
    "command": (f"command: [{sys.executable}, train.py]", SCRIPT),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Start an MLflow server, and return its address."""
    port = free_port()
    store = [
        f"--backend-store-uri=sqlite:///{tmp_path}/server.db",
        f"--artifacts-destination={tmp_path}/kept",
    ]
    command = [sys.executable, "-m", "mlflow", "server", *store, "--port", str(port), "--workers", "1"]
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment(), stdout=log, stderr=log, cwd=tmp_path)
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return requests.get(f"{address}/health", timeout=5).ok
        except requests.ConnectionError:
            return False

    wait_for(answers, 120)
    yield address
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for one in family:
        one.kill()
    process.wait()


def written(folder: Path, kind: str) -> str:
    """Write a search-space file and its script; return the file's path."""
    folder.mkdir()
    trainable, script = KINDS[kind]
    (folder / "train.py").write_text(script)
    file = folder / "rates.yaml"
    file.write_text(FILE.replace("TRAINABLE", trainable))
    return str(file)


def runs(address: str) -> list[Run]:
    """Return every run of a server."""
    client = MlflowClient(address)
    experiments = [one.experiment_id for one in client.search_experiments()]
    return list(client.search_runs(experiments))


def check_runs(commands: Commands, address: str) -> None:
    """Check that the runs of a server are those of the sweep's trials, with what the scripts have logged."""
    [sweep] = commands.ledger.sweeps()
    trials = {trial.key: trial for trial in commands.ledger.trials(sweep.id)}
    assert {trial.state for trial in trials.values()} == {"COMPLETE"}
    of_trials = [run for run in runs(address) if "trial.key" in run.data.tags]
    assert len(runs(address)) == 1 + len(trials) == 1 + len(of_trials)
    client = MlflowClient(address)
    for run in of_trials:
        rate = trials[run.data.tags["trial.key"]].params["rate"]
        run_id = run.info.run_id
        gradients = {(one.step, one.value) for one in client.get_metric_history(run_id, "gradient")}
        assert gradients == {(step, rate * step) for step in (1, 2, 3)}
        losses = {(one.step, one.value) for one in client.get_metric_history(run_id, "val/loss")}
        assert losses == {(step, rate / step) for step in (1, 2, 3)}
        assert [file.path for file in client.list_artifacts(run_id)] == ["notes.txt"]
        assert run.info.status == "FINISHED"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_a_script_logs_is_in_the_run_of_its_trial(commands: Commands, server: str, kind: str) -> None:
    file = written(commands.folder / "own", kind)
    code, printed = commands.run(file, MLFLOW_TRACKING_URI=server)
    assert code == 0, printed
    check_runs(commands, server)


def test_a_database_instead_of_a_server(commands: Commands) -> None:
    """The script runs in another folder than the driver, and `check` compares the reported curves alone."""
    code, printed = commands.run(written(commands.folder / "own", "function"))
    assert code == 0, printed
    check_runs(commands, f"sqlite:///{commands.root}/mlflow.db")
    code, printed = commands.run("check")
    assert code == 0, printed


def test_a_sweep_does_without_a_server_that_is_away(commands: Commands) -> None:
    file = written(commands.folder / "own", "function")
    # What has no run is logged nowhere here, so the script must not try.
    (commands.folder / "own" / "train.py").write_text(
        "import os\n\ndef train(trial):\n    assert 'MLFLOW_RUN_ID' not in os.environ\n"
        "    trial.report(trial.steps, {'val/loss': trial.params['rate']})\n"
    )
    address = f"http://127.0.0.1:{free_port()}"
    code, printed = commands.run(file, MLFLOW_TRACKING_URI=address)
    [sweep] = commands.ledger.sweeps()
    assert {trial.state for trial in commands.ledger.trials(sweep.id)} == {"COMPLETE"}, printed
    assert commands.ledger.backlog(sweep.id) > 0
    assert code == 0, printed


LOGS = """
import sys
import mlflow

mlflow.log_params({"rate": "another", "heads": [1, 2]})
mlflow.set_tags({"kind": "mine", "trial.key": "another"})
for step in range(1, 4):
    mlflow.log_metric("val/loss", float(sys.argv[1]) / step, step=step)
    mlflow.log_metric("gradient", step, step=step)
mlflow.log_param("last", step)
"""


def test_what_a_script_logs_alone_is_in_the_ledger_and_in_the_run_of_its_trial(commands: Commands) -> None:
    """The script sends no report, and MLflow receives its metrics from the ledger."""
    folder = commands.folder / "own"
    folder.mkdir()
    (folder / "train.py").write_text(LOGS)
    command = f"command: [{sys.executable}, train.py, '{{rate}}'], metrics: {{source: mlflow}}"
    (folder / "rates.yaml").write_text(FILE.replace("TRAINABLE, mlflow: true", command))
    code, printed = commands.run(str(folder / "rates.yaml"))
    assert code == 0, printed
    [sweep] = commands.ledger.sweeps()
    trials = {trial.key: trial for trial in commands.ledger.trials(sweep.id)}
    assert {trial.state for trial in trials.values()} == {"COMPLETE"}, printed
    address = f"sqlite:///{commands.root}/mlflow.db"
    client = MlflowClient(address)
    of_trials = [run for run in runs(address) if "trial.key" in run.data.tags]
    assert len(of_trials) == len(trials) == 2
    for run in of_trials:
        key, rate = run.data.tags["trial.key"], trials[run.data.tags["trial.key"]].params["rate"]
        expected = {(step, rate / step) for step in (1, 2, 3)}
        assert {(row.step, row.metrics["val/loss"]) for row in commands.ledger.trial_reports(key)} == expected
        history = client.get_metric_history(run.info.run_id, "val/loss")
        assert [(one.step, one.value) for one in history] == sorted(expected), "each value once"
        assert run.data.metrics["gradient"] == 3
        assert run.data.params["rate"] == str(rate), "a hyperparameter keeps its text"
        assert (run.data.params["heads"], run.data.params["last"]) == ("[1, 2]", "3")
        assert (run.data.tags["kind"], run.data.tags["trial.key"]) == ("mine", key)
        assert run.data.tags["reported:trial.key"] == "another"
    code, printed = commands.run("check")
    assert code == 0, printed


KEEPS = """
import os, pathlib, signal, sys, time
import mlflow
import mlflow.sklearn
from sklearn.linear_model import LinearRegression

rate, started = sys.argv[1], pathlib.Path(f"started-{sys.argv[1]}")
is_first = not started.exists()
started.touch()
for step in range(1, 4):
    mlflow.log_text(f"{rate} {step}", "notes/last.txt")
    mlflow.log_dict({"step": step}, f"step-{step}.json")
    mlflow.log_metric("val/loss", float(rate) / step, step=step)
    time.sleep(0.5)
    if is_first and step == 2:
        mlflow.log_text("of an attempt that was lost", "lost.txt")
        os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path("table.csv").write_text("a,b")
mlflow.log_artifact("table.csv", "tables")
fitted = LinearRegression().fit([[0.0], [1.0]], [0.0, float(rate)])
mlflow.sklearn.log_model(fitted, name="line", pip_requirements=["scikit-learn"])
"""


def test_artifacts_and_models_that_a_script_logs_are_in_the_run_of_its_trial(commands: Commands) -> None:
    """The first attempt of each trial is killed between two reports."""
    folder = commands.folder / "own"
    folder.mkdir()
    (folder / "train.py").write_text(KEEPS)
    command = f"command: [{sys.executable}, train.py, '{{rate}}'], metrics: {{source: mlflow}}"
    (folder / "rates.yaml").write_text(FILE.replace("TRAINABLE, mlflow: true", command))
    code, printed = commands.run(str(folder / "rates.yaml"))
    assert code == 0, printed
    [sweep] = commands.ledger.sweeps()
    trials = {trial.key: trial for trial in commands.ledger.trials(sweep.id)}
    attempts = Counter(attempt.trial_key for attempt in commands.ledger.attempts(sweep.id))
    address = f"sqlite:///{commands.root}/mlflow.db"
    client = MlflowClient(address)
    of_trials = [run for run in runs(address) if "trial.key" in run.data.tags]
    assert len(of_trials) == 2
    for run in of_trials:
        rate, run_id = trials[run.data.tags["trial.key"]].params["rate"], run.info.run_id
        assert attempts[run.data.tags["trial.key"]] == 2, printed
        steps = ["step-1.json", "step-2.json", "step-3.json"]
        assert [one.path for one in client.list_artifacts(run_id)] == ["line", "notes", *steps, "tables"]
        files = Path(run.info.artifact_uri.removeprefix("file://"))
        assert (files / "notes" / "last.txt").read_text() == f"{rate} 3"
        assert (files / "tables" / "table.csv").read_text() == "a,b"
        model = mlflow.sklearn.load_model(str(files / "line"))
        assert model.predict([[2.0]])[0] == pytest.approx(2 * rate)
    mlflow.set_tracking_uri(address)
    served = mlflow.pyfunc.load_model(f"runs:/{run_id}/line")
    assert served.predict([[2.0]])[0] == pytest.approx(2 * rate)
    code, printed = commands.run("check")
    assert code == 0, printed


EXACT = """
import json, pathlib, time
import sweep_client

trial = sweep_client.trial()
with pathlib.Path("seen.jsonl").open("a") as seen:
    print(json.dumps([trial.folder.parts[-2:], trial.start, dict(trial.params)]), file=seen)
for step in range(trial.start + 1, trial.steps + 1):
    held = trial.folder / str(step)
    held.mkdir()
    (held / "held.json").write_text(json.dumps(trial.params))
    if not trial.report(step, {"val/loss": 1 / 3, "least": -0.0, "most": 2**53}, checkpoint=held):
        break
    time.sleep(0.3)
"""
CHOICES = {
    "count": [9007199254740993, 9007199254740995],
    "whole": [8.0, 16.0],
    "share": [0.1, 1e-300],
    "flag": [True, False],
    "word": ["007", "1e3"],
    "formula": ["=1+1", "null"],
}


def test_values_keep_type_and_digits_when_a_sweep_is_killed_and_resumed(commands: Commands) -> None:
    """The script, its checkpoint, the ledger, MLflow, `export`, JSON and CSV agree, before and after."""
    folder = commands.folder / "own"
    folder.mkdir()
    (folder / "train.py").write_text(EXACT)
    search = "".join(f"  {name}: {{choice: {json.dumps(values)}}}\n" for name, values in CHOICES.items())
    file = folder / "exact.yaml"
    file.write_text(
        f"trainable: {{command: [{sys.executable}, train.py]}}\nsearch:\n{search}"
        "training: {steps: 12, interval: 1}\nobjective: {minimize: val/loss}\n"
        "sampler: {random: {seed: 3}}\nscheduler: none\nbudget: {trials: 3}\n"
    )
    driver = commands.start(str(file))
    wait_for(
        lambda: any(
            trial.step >= 3
            for sweep in commands.ledger.sweeps()
            for trial in commands.ledger.trials(sweep.id)
        )
    )
    driver.kill()
    driver.wait()
    [sweep] = commands.ledger.sweeps()
    code, printed = commands.run("resume", sweep.id)
    assert code == 0, printed

    trials = {trial.key: trial for trial in commands.ledger.trials(sweep.id)}
    assert {trial.state for trial in trials.values()} == {"COMPLETE"}
    seen = [json.loads(line) for line in (folder / "seen.jsonl").read_text().splitlines()]
    assert len(seen) > len(trials)
    assert any(start > 0 for _, start, _ in seen)
    given = {_exactly(params) for _, _, params in seen}
    assert given == {_exactly(trial.params) for trial in trials.values()}
    for trial in trials.values():
        assert all(trial.params[name] in values for name, values in CHOICES.items())

    address = f"sqlite:///{commands.root}/mlflow.db"
    client = MlflowClient(address)
    runs_of_trials = {
        run.data.tags["trial.key"]: run for run in runs(address) if "trial.key" in run.data.tags
    }
    with (commands.root / "reports" / sweep.id / "leaderboard.csv").open(newline="") as rows:
        table = {row["key"]: row for row in csv.DictReader(rows)}
    for key, trial in trials.items():
        code, printed = commands.run("export", key, "--to", str(folder / key))
        assert code == 0, printed
        facts = json.loads((folder / key / "trial.json").read_text())
        held = json.loads((folder / key / "checkpoint" / "held.json").read_text())
        code, printed = commands.run("show", key, "--json")
        assert code == 0, printed
        for params in (facts["params"], held, json.loads(printed)["trial"]["params"]):
            assert _exactly(params) == _exactly(trial.params)
        assert (facts["metrics"]["val/loss"], facts["metrics"]["most"]) == (1 / 3, 2**53)
        for name, value in trial.params.items():
            assert runs_of_trials[key].data.params[name] == str(value)
            assert table[key][name] == ("'" if str(value).startswith("=") else "") + str(value)
        assert float(table[key]["val/loss"]) == 1 / 3
        assert {
            point.value for point in client.get_metric_history(runs_of_trials[key].info.run_id, "most")
        } == {2**53}


def _exactly(params: object) -> str:
    """Return values as JSON, which distinguishes 8 from 8.0 and from "8"."""
    return json.dumps(params, sort_keys=True)
