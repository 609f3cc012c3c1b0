"""Studies of Optuna become search-space files that `validate` accepts.

Models: pytorch_simple.py of optuna/optuna-examples, and create_study_MO.py of
alexwin9478/AutoMlforDnnTraining, with a journal and two objectives. The studies are written by Optuna.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from orchestrator.cli.app import run_command
from tests.orchestrator.config.imports.files import translated

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


def of_a_network(trial: optuna.Trial) -> float:
    """Draw as the example does: some units exist only if there are enough layers."""
    optimizer = trial.suggest_categorical("optimizer", ["Adam", "RMSprop", "SGD"])
    for layer in range(trial.suggest_int("n_layers", 1, 3)):
        trial.suggest_int(f"n_units_l{layer}", 4, 128, log=True)
    rate = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    if optimizer == "SGD":
        trial.suggest_float("momentum", 0.0, 0.9, step=0.3)
    for epoch in range(5):
        trial.report(rate, epoch)
    if trial.number % 5 == 4:
        raise optuna.TrialPruned
    return rate


def stored(folder: Path, objective: Callable[[Any], Any] = of_a_network, **options: Any) -> Path:
    """Write a study of 30 random trials to `study.db`."""
    storage = RDBStorage(f"sqlite:///{folder / 'study.db'}")
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(storage=storage, sampler=sampler, **options)
    study.optimize(objective, n_trials=30)
    storage.engine.dispose()
    return folder / "study.db"


@pytest.mark.slow
def test_a_study_with_branches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A parameter that some trials lack gets the condition that explains which."""
    file = stored(tmp_path, study_name="digits", direction="maximize")
    before = file.read_bytes()
    sweep, text, notes = translated(tmp_path, capsys, f"sqlite:///{file}", "--maximize", "val/accuracy")
    assert sweep.search["lr"].document() == {"log_uniform": [1e-5, 0.1]}
    assert sweep.search["n_units_l0"].document() == {"log_int": [4, 128]}
    assert sweep.search["n_units_l1"].when == {"n_layers": (2, 3)}
    assert sweep.search["n_units_l2"].when == {"n_layers": (3,)}
    assert sweep.search["momentum"].document() == {
        "uniform": [0.0, 0.9],
        "step": 0.3,
        "when": {"optimizer": ["SGD"]},
    }
    assert [(one.direction, one.metric) for one in sweep.objectives] == [("maximize", "val/accuracy")]
    assert sweep.training.steps == 5
    assert "# Translated from the Optuna study digits in " in text
    assert f'known: "optuna://sqlite:///{file}#digits"\n' in text
    assert run_command(["validate", str(tmp_path / "translated.yaml")]) == 0
    assert f"known results of optuna://sqlite:///{file}#digits: 24 results\n" in capsys.readouterr().out
    assert notes == []
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("study")) == ["study.db"]


def test_a_journal_with_two_objectives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = tmp_path / "learn.log"
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(journal))),
        study_name="learn",
        directions=["minimize", "minimize"],
    )
    study.set_metric_names(["loss", "size"])
    study.optimize(lambda trial: (trial.suggest_float("x", -5, 5), trial.suggest_int("n", 1, 9)), n_trials=3)
    before = journal.read_bytes()
    sweep, _, _ = translated(tmp_path, capsys, str(journal))
    assert [(one.direction, one.metric) for one in sweep.objectives] == [
        ("minimize", "loss"),
        ("minimize", "size"),
    ]
    assert sweep.search["n"].document() == {"int": [1, 9]}
    assert sweep.training.steps == 1
    assert journal.read_bytes() == before
    rows = (tmp_path / "translated-known.csv").read_text().splitlines()
    assert (rows[0], len(rows)) == ("x,n,loss,size", 4), "a journal is not read when the sweep starts"


def test_the_results_of_a_renamed_parameter_are_known_by_its_new_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The storage has them by the old name, by which the file could not find them."""

    def objective(trial: optuna.Trial) -> float:
        return trial.suggest_float("learning rate", 0, 1)

    source = stored(tmp_path, objective)
    sweep, text, notes = translated(tmp_path, capsys, f"sqlite:///{source}")
    assert list(sweep.search) == ["learning_rate"]
    assert "is named learning_rate here" in " ".join(notes)
    assert "known: translated-known.csv\n" in text
    (header, *rows) = (tmp_path / "translated-known.csv").read_text().splitlines()
    assert header == "learning_rate,val/loss"
    assert run_command(["validate", str(tmp_path / "translated.yaml")]) == 0
    assert f"known results of translated-known.csv: {len(rows)} results\n" in capsys.readouterr().out


def test_choices_keep_their_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def objective(trial: optuna.Trial) -> float:
        return float(trial.suggest_categorical("c", [None, 1, 0.5, "a", True]) is None)

    sweep, _, _ = translated(tmp_path, capsys, str(stored(tmp_path, objective)))
    assert sweep.search["c"].choices == (None, 1, 0.5, "a", True)


def test_ranges_that_differ_are_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def objective(trial: optuna.Trial) -> float:
        return trial.suggest_float("x", 0, 1 + trial.number % 2)

    sweep, _, notes = translated(tmp_path, capsys, str(stored(tmp_path, objective)))
    assert sweep.search["x"].ends() == (0, 2)
    assert "has several ranges, and here one that holds them all" in notes[0]


def test_a_branch_without_an_explanation_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def objective(trial: optuna.Trial) -> float:
        if trial.suggest_float("x", 0, 1) > 0.5:
            trial.suggest_float("y", 0, 1)
        return 0.0

    sweep, _, notes = translated(tmp_path, capsys, str(stored(tmp_path, objective)))
    assert not sweep.search["y"].when
    assert "parameter y: is drawn in some trials only, and here in all" in notes[0]


@pytest.mark.slow
def test_one_of_several_studies_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = stored(tmp_path, study_name="first")
    stored(tmp_path, study_name="second")
    assert run_command(["import", str(file)]) == 2
    assert "must have one study, or `--study` must name one (got first, second)" in capsys.readouterr().err
    assert run_command(["import", str(file), "--study", "third"]) == 2
    assert "must have the study third (got first, second)" in capsys.readouterr().err
    assert run_command(["import", str(file), "--study", "second"]) == 0
    assert "the Optuna study second in" in capsys.readouterr().out


def test_a_study_without_trials_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "study.db"
    optuna.create_study(storage=f"sqlite:///{file}")
    assert run_command(["import", str(file)]) == 2
    assert "must have something to search" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "must"),
    [
        ("sqlite:///missing.db", "must be a file that exists"),
        ("sqlite+pysqlite:///study.db", "must be sqlite:///PATH"),
        ("sqlite://", "must be sqlite:///PATH"),
        ("redis://host:6379/0", "Redis keeps pickled objects, which are not read"),
        ("nothing://host/x", "must be a readable storage of Optuna"),
    ],
)
def test_a_storage_that_is_not_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
    must: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["import", source]) == 2
    assert must in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_password_of_a_database_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["import", "postgresql://ada:secret@127.0.0.1:1/x"]) == 2
    assert "secret" not in "".join(capsys.readouterr())


def test_another_database_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("create table t (x)")
    connection.close()
    before = file.read_bytes()
    assert run_command(["import", str(file)]) == 2
    assert "must be a readable storage of Optuna" in capsys.readouterr().err
    assert file.read_bytes() == before


@pytest.mark.slow
def test_a_damaged_distribution_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = stored(tmp_path)
    with sqlite3.connect(file) as connection:
        connection.execute('update trial_params set distribution_json = \'{"name": "os.system"}\'')
    connection.close()
    assert run_command(["import", str(file)]) == 2
    assert "must be a readable storage of Optuna" in capsys.readouterr().err


def test_values_that_are_not_finite_explain_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A study whose only complete trial has an infinite value has no condition to guess."""
    file = tmp_path / "study.db"
    study = optuna.create_study(storage=f"sqlite:///{file}")
    distribution = optuna.distributions.FloatDistribution(0, 1)
    study.add_trial(
        create_trial(
            params={"x": 0.5},
            distributions={"x": distribution},
            value=float("inf"),
            state=TrialState.COMPLETE,
        )
    )
    sweep, _, notes = translated(tmp_path, capsys, str(file))
    assert set(sweep.search) == {"x"}
    assert notes == []
