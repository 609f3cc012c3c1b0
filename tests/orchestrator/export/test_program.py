"""An exported program is trained again by the sizes of programs that trained it, on a CPU too."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator import Trial
from orchestrator.errors import BadInput
from orchestrator.export.folder import files_of_program
from orchestrator.ledger.sweeps.records import TrialRecord
from orchestrator.session.session import Session
from orchestrator.training.attempt import Attempt
from orchestrator.training.engine_cache import EngineCache
from orchestrator.training.evaluation import evaluate
from tests.orchestrator.session.sessions import Sessions, launch
from trainables import replay

FILE = """
trainable: {program: model.py:OfLinen, folder: code}
search: {learning_rate: {log_uniform: [1e-3, 1e-2]}}
training: {steps: 60, interval: 20}
objective: {minimize: val/loss}
sampler: {random: {seed: 2}}
scheduler: none
budget: {trials: 2}
"""


def trained_together(session: Session) -> None:
    """Train two trials in one engine: the first alone, both in one program, the second to its end.

    The first meets sizes that grow: for a smaller one, the larger program may stand in for a while.
    """
    assignments = [launch(session) for _ in range(2)]
    engine = EngineCache().engine(assignments[0].settings, "data", slots=2)
    compilations = os.environ["JAX_COMPILATION_CACHE_DIR"]
    attempts = [
        Attempt(engine, slot, replace(assignment, compilations=compilations))
        for slot, assignment in enumerate(assignments)
    ]
    wanted = [{0: 20}, {0: 20}, {0: 20, 1: 20}, {1: 20}, {1: 20}]
    for steps in wanted:
        for slot, report in engine.advance(steps).items():
            session.reported(assignments[slot].attempt_id, attempts[slot].outcome(report))
    for assignment in assignments:
        session.completed(assignment.attempt_id)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Sessions:
    """Return the ledger of a sweep whose two trials have shared a program."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "code").mkdir()
    shutil.copy(Path(__file__).parents[2] / "trainables" / "digits.py", folder / "code" / "model.py")
    sessions = Sessions(folder)
    trained_together(sessions.open(sessions.of(FILE)))
    return sessions


def trials(sessions: Sessions) -> list[TrialRecord]:
    (sweep,) = sessions.ledger.sweeps()
    return sessions.ledger.trials(sweep.id)


@pytest.mark.slow
def test_a_program_is_trained_again_by_its_recorded_sizes(
    trained: Sessions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The curve of a trial that shared a program is repeated to the last digit, and not with other sizes."""
    (record, _) = trials(trained)
    assert record.state == "COMPLETE"
    folder = tmp_path / "exported"
    promised, *_ = Trial.find(record.key, root=trained.paths.root).export(folder)
    assert "up to 2 slots at once: run.sh repeats their recorded sizes" in promised
    file = folder / "trial.json"
    document = json.loads(file.read_text())
    assert document["stretches"] == [[[40, 2, 1], [20, 2, 2]]]
    assert document["settings"]["folder"] == "program", "its own copy of the code"
    with np.load(folder / "checkpoint.npz", allow_pickle=False) as state:
        assert state["step"] == record.best_step
    assert replay.main([str(file)]) == 0
    assert promised in capsys.readouterr().out

    file.write_text(json.dumps({**document, "stretches": [[[60, 1, 1]]]}))
    assert replay.main([str(file)]) == 1, "other sizes give other digits, or this test would show nothing"
    assert "differs: " in capsys.readouterr().out


@pytest.mark.slow
def test_an_evaluation_needs_no_record_of_sizes(trained: Sessions) -> None:
    """The checkpoint of a trial that shared a program has the recorded scores in an engine of one slot."""
    for record in trials(trained):
        saved = next(row for row in trained.ledger.trial_checkpoints(record.key) if row.kind == "best")
        compilations = os.environ["JAX_COMPILATION_CACHE_DIR"]
        answer = evaluate(saved.path, saved.digest, "data", "validation", compilations)
        assert {f"val/{name}": value for name, value in answer["metrics"].items()} == {
            name: value for name, value in saved.metrics.items() if name.startswith("val/")
        }


def test_a_program_that_is_gone_is_not_exported(trained: Sessions, tmp_path: Path) -> None:
    (record, _) = trials(trained)
    code = trained.paths.root.parent / "code"
    gone = code.rename(code.with_name("gone"))
    try:
        with pytest.raises(BadInput, match=r"trainable\.program must exist to be exported"):
            Trial.find(record.key, root=trained.paths.root).export(tmp_path / "exported")
    finally:
        gone.rename(code)
    assert not (tmp_path / "exported").exists()


@pytest.mark.parametrize("absolute", [True, False])
def test_a_program_outside_its_folder_is_written_nowhere_else(tmp_path: Path, absolute: bool) -> None:
    folder, outside = tmp_path / "code", tmp_path / "net.py"
    folder.mkdir()
    outside.touch()
    reference = f"{outside}:Net" if absolute else "../net.py:Net"
    with pytest.raises(BadInput, match=rf"trainable\.program must be a file in {folder} to be exported"):
        files_of_program(reference, folder)


def test_an_installed_program_is_named_only(tmp_path: Path) -> None:
    assert files_of_program("optax.losses:Net", tmp_path) == []
    with pytest.raises(BadInput, match="must exist to be exported"):
        files_of_program("no_such_package:Net", tmp_path)
