"""A trial that was shed ends with the numbers of an undisturbed one; both are really trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orchestrator.training.attempt import OwnEngine
from tests.orchestrator.session.sessions import SPACE, FixedShare, Sessions, launch
from trainables import checkpoint


def trained(folder: Path, shed_at: int | None) -> dict[str, np.ndarray]:
    """Train the first trial of a sweep, shed it once it has reported a step, and return its last arrays."""
    folder.mkdir()
    sessions, engine = Sessions(folder), OwnEngine()
    share = sessions.share = FixedShare(1)
    task = "task: adding\ndata: {length: 16, examples: 64, held_out: 16}"
    space = (
        SPACE.replace("task: retrieval", task)
        .replace("val/accuracy", "val/loss")
        .replace("maximize", "minimize")
    )
    session = sessions.open(sessions.of(space.replace("BUDGET", "1")))
    attempts = [launch(session)]
    while not session.finished:
        outcome = engine.advance(attempts[-1])
        assert outcome.failure is None, outcome.message
        session.reported(attempts[-1].attempt_id, outcome)
        share.leaving = {attempts[-1].attempt_id} if outcome.step == shed_at else set()
        if outcome.done or session.sheds(attempts[-1].attempt_id):
            session.completed(attempts[-1].attempt_id)
            engine.release()
            if not session.finished:
                attempts.append(launch(session))
    assert len(attempts) == (1 if shed_at is None else 2)
    trial = sessions.ledger.trial(attempts[0].trial_key)
    assert (trial.state, trial.step) == ("COMPLETE", 30)
    row = next(row for row in sessions.ledger.trial_checkpoints(trial.key) if row.kind == "last")
    arrays, _ = checkpoint.load(Path(row.path), row.digest)
    return arrays


@pytest.mark.slow
def test_a_shed_trial_ends_with_the_bits_of_an_undisturbed_one(tmp_path: Path) -> None:
    undisturbed = trained(tmp_path / "undisturbed", None)
    shed = trained(tmp_path / "shed", 10)
    assert shed.keys() == undisturbed.keys()
    for name, array in undisturbed.items():
        np.testing.assert_array_equal(shed[name], array, err_msg=name)
