"""The trainable with its own engine, called as Ray Tune calls it, in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ray import tune

from orchestrator.assignment import Outcome, SavedCheckpoint
from orchestrator.schedule.worker import Worker
from tests.attempts import assignment


def test_trials_follow_each_other_in_one_worker(tmp_path: Path) -> None:
    """One trial completes, one fails with its cause, one is stopped, and the next starts from its seed."""
    alone = [replace(assignment(tmp_path, number), gpu=0.0) for number in range(4)]
    broken = replace(alone[1], resume=SavedCheckpoint(str(tmp_path / "nothing"), 10, "0" * 64, 1))
    worker = tune.with_parameters(Worker, environment={})(alone[0].to_config())
    whole = [Outcome.from_result(worker.train()) for _ in range(3)]
    assert [(outcome.step, outcome.done) for outcome in whole] == [(10, False), (20, False), (30, True)]
    assert worker.reset(broken.to_config())
    failed = Outcome.from_result(worker.train())
    assert (failed.failure, failed.done) == ("damaged checkpoint", True)
    assert worker.reset(alone[2].to_config())
    assert Outcome.from_result(worker.train()).step == 10
    assert worker.reset(alone[3].to_config())
    fresh = Outcome.from_result(worker.train())
    assert (fresh.step, fresh.failure, fresh.engine) == (10, None, None)
    assert fresh.checkpoint is not None
    assert (Path(fresh.checkpoint.path) / "manifest.json").exists()
    worker.stop()
