"""A whole sweep by the command line, with real Ray, Optuna, MLflow and files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import ViewType

from orchestrator.ledger.ledger import Ledger
from tests.end_to_end.commands import SMALL, Commands
from trainables import checkpoint

pytestmark = pytest.mark.end_to_end

FOUR = [*SMALL, "--set", "budget.trials=4"]


def test_sweep_from_command_to_report(commands: Commands) -> None:
    """One command trains, chooses, evaluates test once and reports; run again, it has nothing to do."""
    code, output = commands.run(*FOUR)
    assert code == 0, output
    assert "Profile `laptop`" in output
    assert "not AAN" in output
    ledger = commands.ledger
    (sweep,) = ledger.sweeps()
    assert sweep.state == "COMPLETE"
    trials = ledger.trials(sweep.id)
    assert [trial.number for trial in trials] == [0, 1, 2, 3]
    assert {trial.state for trial in trials} <= {"COMPLETE", "PRUNED"}
    _check_same_in_mlflow(commands.folder, ledger, sweep.id)
    _check_checkpoints(ledger, sweep.id)
    chosen = _check_evaluated_once(ledger, sweep.id)
    assert chosen in output

    code, output = commands.run("evaluate", chosen, "--json")
    assert code == 0, output
    answer = json.loads(output[output.index("{") :])
    assert answer["equal"] is True

    _check_champion(commands.folder, chosen)
    _check_export(commands, chosen)

    code, output = commands.run(*FOUR)
    assert code == 0, output
    assert "is finished" in output
    assert len(ledger.evaluations(sweep.id)) == 1
    assert all(trial.attempts == 1 for trial in ledger.trials(sweep.id))


def _check_same_in_mlflow(folder: Path, ledger: Ledger, sweep_id: str) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlruns/mlflow.db")
    (experiment,) = [entry for entry in client.search_experiments() if entry.name == "retrieval"]
    runs = client.search_runs([experiment.experiment_id], run_view_type=ViewType.ALL, max_results=100)
    by_key = {run.data.tags["trial.key"]: run for run in runs if "trial.key" in run.data.tags}
    trials = {trial.key: trial for trial in ledger.trials(sweep_id)}
    assert by_key.keys() == trials.keys()
    assert len(runs) == len(trials) + 1
    for report in ledger.reports(sweep_id):
        curve = client.get_metric_history(by_key[report.trial_key].info.run_id, "val/accuracy")
        assert [point.value for point in curve if point.step == report.step] == [
            report.metrics["val/accuracy"]
        ]
        first = client.get_metric_history(by_key[report.trial_key].info.run_id, "hidden_norm/state/layer_0")
        assert min(point.step for point in first) == 0
    assert {run.info.status for run in by_key.values()} == {"FINISHED"}
    assert {"hidden_norm/head/layer_0", "tokens_per_second", "learning_rate"} <= next(
        iter(by_key.values())
    ).data.metrics.keys()


def _check_champion(folder: Path, chosen: str) -> None:
    """Check that the chosen checkpoint is a registered model."""
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlruns/mlflow.db")
    version = client.get_model_version_by_alias("rotrnn-retrieval", "champion")
    assert version.tags["trial.key"] == chosen
    assert f"`{chosen}`" in version.description
    assert client.get_run(version.run_id).data.tags["trial.key"] == chosen


def _check_export(commands: Commands, chosen: str) -> None:
    """Check that an exported trial, trained by its own code alone, has exactly the recorded curve."""
    folder = commands.folder / "export"
    code, output = commands.run("export", chosen, "--to", str(folder))
    assert code == 0, output
    again = subprocess.run(
        [folder / "run.sh", "--data", commands.shared / "data"],
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count("step ") == 4
    assert "equal to the last digit" in again.stdout


def _check_checkpoints(ledger: Ledger, sweep_id: str) -> None:
    rows = ledger.checkpoints(sweep_id)
    assert rows
    for row in rows:
        arrays, facts = checkpoint.load(Path(row.path), row.digest)
        assert arrays
        assert facts["step"] == row.step


def _check_evaluated_once(ledger: Ledger, sweep_id: str) -> str:
    """Check that test was evaluated once, for the best trial; return the key of that trial."""
    (evaluation,) = ledger.evaluations(sweep_id)
    best = max(
        (trial for trial in ledger.trials(sweep_id) if trial.state == "COMPLETE"),
        key=lambda trial: (trial.value or 0, -trial.number),
    )
    assert evaluation.trial_key == best.key
    assert 0 <= evaluation.metrics["test/accuracy"] <= 1
    return best.key


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["no_such.yaml"], r"no_such\.yaml does not exist\. .*"),
        (
            ["search_spaces/retrieval.yaml", "--profile", "full"],
            r"retrieval: resources\.gpu must .* 0 GPU\(s\).*",
        ),
        *(
            pytest.param(["search_spaces/retrieval.yaml", *words], expected, marks=pytest.mark.slow)
            for words, expected in (
                (["--profile", "laptpo"], r"laptop"),
                (["--set", "training.stesp=3"], r"steps"),
                (["--set", "data.source=aan"], r"new_aan_pairs"),
            )
        ),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    commands: Commands, arguments: list[str], expected: str
) -> None:
    """Bad input is refused with exit code 2 before Ray starts."""
    code, output = commands.run(*arguments, timeout=60, CUDA_VISIBLE_DEVICES="")
    assert code == 2, output
    assert len(output.strip().splitlines()) == 1, output
    assert re.search(expected, output), output
    assert not (commands.root).exists()
