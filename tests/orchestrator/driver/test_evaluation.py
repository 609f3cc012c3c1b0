"""The evaluation of test when a checkpoint turns out to be damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray.exceptions import RayTaskError

from orchestrator.driver import execution
from orchestrator.driver.admission import Claim, Observer, Run
from orchestrator.driver.departure import Departure
from orchestrator.driver.sweep_rows import without_test
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.scores import pack
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule.engines import Engines
from tests.orchestrator.session.sessions import Sessions, launch, train
from trainables import checkpoint
from trainables.errors import DamagedCheckpoint


def _evaluate(request: execution.cluster.EvaluationRequest, *_: object) -> dict[str, object]:
    """Load the checkpoint as a worker does, and raise what Ray raises for an error of the worker."""
    try:
        _, facts = checkpoint.load(Path(request.folder), request.digest)
    except DamagedCheckpoint as damage:
        raise RayTaskError("evaluate", "traceback", damage).as_instanceof_cause() from damage
    return {"step": facts["step"], "metrics": {"accuracy": 0.5}, "scores": pack([1.0, 0.0])}


def test_a_trial_whose_checkpoint_is_damaged_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next best one is evaluated, which the report names too; a second run finds nothing left to do."""
    monkeypatch.setattr(execution.cluster, "evaluate", _evaluate)
    sessions = Sessions(tmp_path)
    session = sessions.open(sessions.sweep(2))
    second, best = launch(session), launch(session)
    train(session, second, value=0.5)
    train(session, best, value=0.9)
    for row in sessions.ledger.trial_checkpoints(best.trial_key):
        (Path(row.path) / "arrays.npz").write_bytes(b"damaged")
    run = Run(sessions.paths, sessions.folder, Hardware(cpus=1, gpus=0))
    with Lease(sessions.ledger, session.sweep.id) as lease, caplog.at_level("INFO", "orchestrator"):
        claim = Claim(session.sweep, run, sessions.ledger, lease, Observer(), Departure())
        execution.evaluate_test(claim, Engines(lambda: 0))
        assert without_test(claim) == []
    assert [row.trial_key for row in sessions.ledger.evaluations(session.sweep.id)] == [second.trial_key]
    assert f"{best.trial_key} is left out of the evaluation of test." in caplog.text
    assert "arrays.npz: must have" in caplog.text
