"""Attempts: their launch from the rows of their trial, and the check of their outcomes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.assignment import Outcome, SavedCheckpoint
from orchestrator.ledger.sweeps.records import CheckpointKind, CheckpointRecord
from orchestrator.ledger.sweeps.selection import best_of_sweep
from orchestrator.session.attempts import finite_or_failed, launched
from orchestrator.storage.paths import Paths
from orchestrator.study.study import Study
from tests import sweeps
from tests.orchestrator.session.sessions import Sessions, launch, outcome, train

PARAMS = {"learning_rate": 1e-3, "recurrent_learning_rate": 1e-4}
TRIAL = replace(sweeps.trial(3, "WAITING"), params=PARAMS)
METRIC = "val/accuracy"


def checkpoint(kind: CheckpointKind, step: int, value: float) -> CheckpointRecord:
    path = f"/another-host/step-{step:09d}"
    return CheckpointRecord(TRIAL.key, step, kind, path, f"digest of {step}", 1, {METRIC: value})


def test_a_first_attempt_starts_at_step_0(sessions: Sessions) -> None:
    run, assignment = launched(
        "s-3.1",
        TRIAL,
        [],
        sweep=sessions.sweep(4),
        paths=sessions.paths,
        ledger_id="feed",
        data=Path("data"),
        now=7.0,
    )
    assert (run.step, run.best, run.best_step, run.resumed, run.reported_at) == (0, None, None, None, 7.0)
    assert (assignment.attempt_id, assignment.trial_key) == ("s-3.1", TRIAL.key)
    assert assignment.resume is None
    assert assignment.settings.training.learning_rate == 1e-3


def test_a_later_attempt_resumes_the_last_checkpoint_and_remembers_the_best(sessions: Sessions) -> None:
    rows = [checkpoint("best", 10, 0.9), checkpoint("last", 20, 0.6)]
    run, assignment = launched(
        "s-3.2",
        TRIAL,
        rows,
        sweep=sessions.sweep(4),
        paths=sessions.paths,
        ledger_id="feed",
        data=Path("data"),
        now=7.0,
    )
    assert (run.step, run.best, run.best_step, run.best_metrics) == (20, 0.9, 10, {METRIC: 0.9})
    assert run.resumed == "/another-host/step-000000020"
    assert assignment.resume == SavedCheckpoint(run.resumed, 20, "digest of 20", 1)


def test_a_checkpoint_of_another_host_is_expected_in_this_hosts_folder(sessions: Sessions) -> None:
    """With a shared store, the path in the ledger is that of the host that wrote the checkpoint."""
    sweep, paths = sessions.sweep(4), Paths(sessions.folder, store="s3://bucket/sweeps")
    rows = [checkpoint("last", 20, 0.6)]
    run, assignment = launched(
        "s-3.2", TRIAL, rows, sweep=sweep, paths=paths, ledger_id="feed", data=Path("data"), now=7.0
    )
    assert assignment.resume is not None
    assert assignment.resume.path == str(Path(assignment.checkpoints) / "step-000000020")
    assert assignment.store == f"s3://bucket/sweeps/feed/{sweep.id}/{TRIAL.key}"
    assert run.resumed == rows[0].path, "the ledger drops a damaged checkpoint by the path that it records"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_objective_that_is_not_finite_is_a_failure(value: float) -> None:
    reported = Outcome(TRIAL.key + ".1", 10, done=False, metrics={METRIC: value, "val/loss": 1.0})
    judged = finite_or_failed(reported, METRIC)
    assert (judged.done, judged.failure, judged.metrics) == (True, "non-finite", {})
    assert judged.message == f"{METRIC} is {value}"


def test_a_further_objective_that_is_not_finite_is_a_failure_too() -> None:
    reported = Outcome(TRIAL.key + ".1", 10, done=False, metrics={METRIC: 0.5, "cost": math.nan})
    judged = finite_or_failed(reported, METRIC, "cost")
    assert (judged.failure, judged.message) == ("non-finite", "cost is nan")


def test_a_trial_whose_second_objective_is_nan_is_never_chosen(sessions: Sessions) -> None:
    """To the sampler it has failed, as if its first objective were NaN; a rebuilt study says the same."""
    sweep = sessions.sweep(2, objective="maximize: val/accuracy, minimize: val/loss, prefer: val/accuracy")
    session = sessions.open(sweep)
    good, bad = launch(session), launch(session)
    train(session, good, value=0.5)
    session.reported(bad.attempt_id, outcome(bad, 10, 0.9, metrics={METRIC: 0.9, "val/loss": math.nan}))
    session.completed(bad.attempt_id)
    failed = sessions.ledger.trial(bad.trial_key)
    cause = "diverged at step 10: val/loss is nan"
    assert (failed.state, failed.cause, failed.value) == ("DIVERGED", cause, None)
    best = best_of_sweep(sessions.ledger, sessions.ledger.sweep(sweep.id))  # type: ignore[arg-type]
    assert best is not None
    assert best.key == good.trial_key
    rebuilt = Study(sweep, sessions.ledger.trials(sweep.id), sessions.ledger.reports(sweep.id))
    assert [trial.state.name for trial in rebuilt.trials()] == ["COMPLETE", "FAIL"]
    assert [trial.state.name for trial in session._attempts._study.trials()] == ["COMPLETE", "FAIL"]


@pytest.mark.parametrize("metrics", [{METRIC: 0.5, "train/loss": math.inf}, {}])
def test_any_other_outcome_is_unchanged(metrics: dict[str, float]) -> None:
    reported = Outcome(TRIAL.key + ".1", 10, done=False, metrics=metrics)
    assert finite_or_failed(reported, METRIC) == reported
