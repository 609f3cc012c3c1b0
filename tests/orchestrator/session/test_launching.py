"""What the driver remembers of an attempt, and what its worker is told, come from the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator.ledger.records import CheckpointKind, CheckpointRecord
from orchestrator.session.launching import launched
from orchestrator.storage.paths import Paths
from tests import sweeps
from tests.orchestrator.session.desk import Desk

PARAMS = {"learning_rate": 1e-3, "recurrent_learning_rate": 1e-4}
TRIAL = replace(sweeps.trial(3, "WAITING"), params=PARAMS)


def checkpoint(kind: CheckpointKind, step: int, value: float) -> CheckpointRecord:
    path = f"/there/step-{step:09d}"
    return CheckpointRecord(TRIAL.key, step, kind, path, f"digest of {step}", 1, {"val/accuracy": value})


def test_a_first_attempt_starts_at_nothing(desk: Desk) -> None:
    run, told = launched(
        "s-3.1", TRIAL, [], sweep=desk.sweep(4), paths=desk.paths, data=Path("data"), now=7.0
    )
    assert (run.step, run.best, run.best_step, run.resumed, run.reported_at) == (0, None, None, None, 7.0)
    assert (told.attempt_id, told.trial_key, told.resume, told.resume_digest) == (
        "s-3.1",
        TRIAL.key,
        None,
        None,
    )
    assert told.settings.training.learning_rate == 1e-3


def test_a_later_one_goes_on_from_the_last_checkpoint_and_remembers_the_best(desk: Desk) -> None:
    rows = [checkpoint("best", 10, 0.9), checkpoint("last", 20, 0.6)]
    run, told = launched(
        "s-3.2", TRIAL, rows, sweep=desk.sweep(4), paths=desk.paths, data=Path("data"), now=7.0
    )
    assert (run.step, run.best, run.best_step, run.best_metrics) == (20, 0.9, 10, {"val/accuracy": 0.9})
    assert run.resumed == told.resume == "/there/step-000000020"
    assert told.resume_digest == "digest of 20"


def test_a_checkpoint_of_another_host_is_looked_for_here(desk: Desk) -> None:
    """What every node reaches is a URL; the path that the ledger has is the writer's own."""
    sweep, paths = desk.sweep(4), Paths(desk.folder, store="s3://bucket/sweeps")
    rows = [checkpoint("last", 20, 0.6)]
    _, told = launched("s-3.2", TRIAL, rows, sweep=sweep, paths=paths, data=Path("data"), now=7.0)
    assert told.resume == str(Path(told.checkpoints) / "step-000000020")
    assert told.store == f"s3://bucket/sweeps/{sweep.id}/{TRIAL.key}"
