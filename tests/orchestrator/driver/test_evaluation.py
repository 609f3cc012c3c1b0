"""The evaluation of test when a checkpoint turns out to be damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray.exceptions import RayTaskError

from orchestrator.driver import execution
from orchestrator.driver.admission import LeasedSweep, Run
from orchestrator.driver.log import Observer
from orchestrator.driver.shutdown import Shutdown
from orchestrator.driver.sweep_rows import without_test
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import pack_scores
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
    assert facts["trial"] == request.trial
    named = {"digest": request.digest, "split": request.split, "step": facts["step"]}
    return {**named, "metrics": {"accuracy": 0.5}, "scores": pack_scores([1.0, 0.0])}


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
        leased = LeasedSweep(session.sweep, run, sessions.ledger, lease, Observer(), Shutdown())
        execution.evaluate_test(leased, Engines(lambda: 0))
        assert without_test(leased) == []
    assert [row.trial_key for row in sessions.ledger.evaluations(session.sweep.id)] == [second.trial_key]
    assert f"{best.trial_key} has no test result." in caplog.text
    assert "arrays.npz: must have" in caplog.text


@pytest.mark.parametrize("named", [{"digest": "0" * 64}, {"split": "validation"}, {"step": 20}])
def test_the_answer_to_another_question_is_not_recorded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    named: dict[str, object],
) -> None:
    """It is asked for again without the engine; the driver goes on if the second answer is foreign, too."""
    asked: list[object] = []

    def evaluate(request: execution.cluster.EvaluationRequest, *rest: object) -> dict[str, object]:
        asked.append(request)
        return {**_evaluate(request), **(named if len(asked) < 4 else {})}

    monkeypatch.setattr(execution.cluster, "evaluate", evaluate)
    sessions = Sessions(tmp_path)
    session = sessions.open(sessions.sweep(1))
    trial = launch(session)
    train(session, trial, value=0.5)
    run = Run(sessions.paths, sessions.folder, Hardware(cpus=1, gpus=0))
    with Lease(sessions.ledger, session.sweep.id) as lease, caplog.at_level("INFO", "orchestrator"):
        leased = LeasedSweep(session.sweep, run, sessions.ledger, lease, Observer(), Shutdown())
        execution.evaluate_test(leased, Engines(lambda: 0))
        assert (len(asked), sessions.ledger.evaluations(session.sweep.id)) == (2, [])
        assert f"{trial.trial_key} has no test result: the answer of an evaluation" in caplog.text
        execution.evaluate_test(leased, Engines(lambda: 0))
    (row,) = sessions.ledger.evaluations(session.sweep.id)
    assert (len(asked), row.trial_key, row.step) == (4, trial.trial_key, 10)
