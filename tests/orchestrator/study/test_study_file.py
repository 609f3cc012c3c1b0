"""The study in an SQLite file equals the study of the ledger."""

from __future__ import annotations

import math
from pathlib import Path

import optuna
import pytest

from orchestrator.config.space import Distribution
from orchestrator.config.sweep_config import Objective
from orchestrator.study.distributions import as_drawn
from orchestrator.study.study import Study, store
from tests.orchestrator.study.sweeps import CONDITIONAL, FURTHER, METRIC, Run, sweep


def _ended(**given: object) -> Study:
    """Return a study with a complete, a pruned, a failed and a running trial."""
    study = Study(sweep("random", seed=0, **given))  # type: ignore[arg-type]
    metrics = {METRIC: 0.7, "val/loss": 0.5}
    for number, state in enumerate(("COMPLETE", "PRUNED", "FAILED", "RUNNING")):
        study.ask(number)
        study.report(number, 1, 0.6)
        if state != "RUNNING":
            study.tell(number, state, 0.7 if state == "COMPLETE" else None, 2, metrics)
    return study


def test_optuna_loads_the_same_trials(tmp_path: Path) -> None:
    study = _ended(search=CONDITIONAL)
    assert store(study, tmp_path / "study.db", "s") == 4
    loaded = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert loaded.metric_names == [METRIC]
    assert loaded.direction.name == "MAXIMIZE"
    for loaded_trial, trial in zip(loaded.trials, study.trials(), strict=True):
        assert (loaded_trial.state, loaded_trial.params, loaded_trial.values) == (
            trial.state,
            trial.params,
            trial.values,
        )
        assert loaded_trial.intermediate_values == trial.intermediate_values
        assert loaded_trial.distributions == trial.distributions
    assert loaded.best_value == 0.7
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]


def test_the_file_has_distributions_that_optuna_does_not_have(tmp_path: Path) -> None:
    study = _ended(search=FURTHER)
    assert store(study, tmp_path / "study.db", "s") == 4
    loaded = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path / 'study.db'}").trials
    proposals = [study.ask(number) for number in range(4)]
    for trial, proposal in zip(loaded, proposals, strict=True):
        assert proposal is not None
        drawn = {name: as_drawn(FURTHER[name], held) for name, held in trial.params.items()}
        assert drawn == proposal.params


@pytest.mark.filterwarnings("ignore:The distribution is specified by")
def test_the_file_has_the_upper_end_of_a_range_with_a_step(tmp_path: Path) -> None:
    """Optuna shortens a range that it reads by its decimals, which do not divide: all values stay inside."""
    gamma = Distribution("uniform", 0.0, math.pi, math.pi / 4)
    study = Study(sweep("grid", {"gamma": gamma}))
    tried = [study.ask(number) for number in range(5)]
    store(study, tmp_path / "study.db", "s")
    loaded = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path / 'study.db'}").trials
    assert [trial.params for trial in loaded] == [proposal.params for proposal in tried if proposal]
    assert {trial.distributions["gamma"].high for trial in loaded} == {math.pi}


def test_a_file_has_every_point_of_the_curves(tmp_path: Path) -> None:
    run = Run(sweep("random", seed=0))
    run.go(4)
    study = Study(run.sweep, list(run.trials.values()), run.reports, curves=True)
    store(study, tmp_path / "study.db", "s")
    loaded = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [trial.intermediate_values for trial in loaded.trials] == [
        {report.step: report.metrics[METRIC] for report in run.reports if report.trial_key == trial.key}
        for trial in run.trials.values()
    ]


def test_several_objectives_keep_their_names(tmp_path: Path) -> None:
    objectives = (Objective(METRIC, "maximize"), Objective("val/loss", "minimize"))
    store(_ended(objectives=objectives), tmp_path / "study.db", "s")
    loaded = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert loaded.metric_names == [METRIC, "val/loss"]
    assert loaded.best_trials[0].values == [0.7, 0.5]


def test_a_file_that_cannot_be_written_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "study.db").mkdir()
    with pytest.raises(OSError):
        store(_ended(search=CONDITIONAL), tmp_path / "study.db", "s")
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]
