"""A script that knows nothing of sweeps: its file is written, it is swept, run by hand and exported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from tests.end_to_end.commands import Commands, finish, wait_for
from trainables.sources import holds_no_code

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = """
import argparse
import beside

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=4)
options = parser.parse_args()
for epoch in range(options.epochs):
    loss = options.lr * beside.FACTOR / (epoch + 1)
    print(f"epoch {epoch + 1}: val_loss={loss:.6f}")
"""


def ran_by(words: list[str], folder: Path, **environment: str) -> str:
    kept = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environment}
    done = subprocess.run(words, cwd=folder, env=kept, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_script_is_swept_shown_and_exported_as_it_is(commands: Commands, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    (code / "beside.py").write_text("FACTOR = 2")
    assert commands.run("init", "--script", str(code / "train.py"))[0] == 0
    file = code / "train.yaml"
    text = file.read_text().replace("trials: 16", "trials: 2").replace("[python", f"[{sys.executable}")
    file.write_text(f"{text}scheduler: none\n")
    status, printed = commands.run(str(file), timeout=500)
    assert status == 0, printed
    (sweep,) = commands.ledger.sweeps()
    trials = commands.ledger.trials(sweep.id)
    assert [trial.state for trial in trials] == ["COMPLETE", "COMPLETE"]
    reports = commands.ledger.trial_reports(trials[0].key)
    expected = [f"epoch {row.step}: val_loss={row.metrics['val_loss']:.6f}" for row in reports]
    assert [row.step for row in reports] == [1, 2, 3, 4]
    _, shown = commands.run("show", trials[0].key)
    (line,) = (line for line in shown.splitlines() if "by hand: " in line)
    assert ran_by(["/bin/sh", "-c", line.partition("by hand: ")[2]], tmp_path).splitlines() == expected
    exported = tmp_path / "exported"
    assert commands.run("export", trials[0].key, "--to", str(exported))[0] == 0
    assert holds_no_code(exported), "beside the script, it would be code of its sweep"
    shutil.rmtree(code)
    moved = exported.rename(tmp_path / "moved")
    assert ran_by([str(moved / "run.sh")], Path("/"), PYTHON=sys.executable).splitlines() == expected
    _check_kept(commands.root, sweep.id)


WORDS = """
import json, os, sys, time

with open(f"seen-{os.environ['SWEEP_SEED']}", "x") as file:
    json.dump(sys.argv[1:], file)
while not os.path.exists("go"):
    time.sleep(0.05)
print("val_loss=1")
"""
VALUES = {"size": [8, 16, 0.5], "layers": [[64, 64], [512]], "extra": [None, {"depth": 2}]}
WANTED = {"size": 0.5, "layers": [512], "extra": {"depth": 2}}


def test_a_running_sweep_tries_a_setting_and_its_command_gets_each_value_as_written(
    commands: Commands, tmp_path: Path
) -> None:
    """The choices are numbers of both kinds, lists, a mapping and null; the request names all of them."""
    (tmp_path / "train.py").write_text(WORDS)
    words = [sys.executable, "train.py", "{size}", "--layers={layers}", "{?extra: --extra {extra}}", "{args}"]
    file = tmp_path / "words.yaml"
    choices = {name: {"choice": values} for name, values in VALUES.items()}
    trainable = {"command": words, "metrics": {"val/loss": r"val_loss=(\S+)"}}
    file.write_text(f"""
trainable: {json.dumps(trainable)}
search: {json.dumps(choices)}
training: {{steps: 1, interval: 1}}
objective: {{minimize: val/loss}}
sampler: {{random: {{seed: 1}}}}
scheduler: none
budget: {{trials: 3}}
resources: {{cpu: 1, concurrent: 2}}
""")
    driver = commands.start(str(file), "--quiet")
    wait_for(lambda: len(list(tmp_path.glob("seen-*"))) == 2 or driver.poll() is not None, 300)
    (sweep,) = commands.ledger.sweeps()
    setting = [f"{name}={json.dumps(value)}" for name, value in WANTED.items()]
    status, printed = commands.run("try", sweep.id, *setting)
    assert (status, "next" in printed) == (0, True), printed
    (tmp_path / "go").touch()
    status, printed = finish(driver)
    assert status == 0, printed
    trials = commands.ledger.trials(sweep.id)
    assert len(trials) == 3
    assert trials[2].params == WANTED, "the others were running"
    assert WANTED not in (trials[0].params, trials[1].params)
    for trial in trials:
        size, layers, extra = (trial.params[name] for name in ("size", "layers", "extra"))
        depth = [] if extra is None else ["--extra", '{"depth": 2}']
        others = [f"--extra={json.dumps(extra)}", f"--layers={json.dumps(layers)}", f"--size={size}"]
        seen = json.loads((tmp_path / f"seen-{trial.seed}").read_text())
        assert seen == [str(size), f"--layers={json.dumps(layers)}", *depth, *others]


def _check_kept(root: Path, sweep_id: str) -> None:
    """Check the archive of the code among the artifacts of the sweep's run in MLflow."""
    client = MlflowClient(f"sqlite:///{root}/mlflow.db")
    (experiment,) = (one for one in client.search_experiments() if one.name == "train.py")
    runs = client.search_runs([experiment.experiment_id], f"tags.`sweep.id` = '{sweep_id}'")
    (run,) = (run for run in runs if "mlflow.parentRunId" not in run.data.tags)
    (kept,) = (root / "artifacts").rglob("code-*.zip")
    assert run.info.run_id in kept.parts
    with zipfile.ZipFile(kept) as archive:
        assert {"code/train.py", "code/beside.py", "packages.txt", "ran.json"} <= set(archive.namelist())
        assert json.loads(archive.read("ran.json"))["interpreter"] == sys.executable
