"""Scripts that write to the runs of their trials in MLflow: when they start, and what names the run."""

from __future__ import annotations

import pytest

from orchestrator.session.session import Session
from orchestrator.session.tracked import LONGEST_WAIT, LOOK_SECONDS
from tests.orchestrator.session.sessions import Sessions, launch

FILE = """
trainable: {function: train.py:train, mlflow: true}
search: {rate: {log_uniform: [1e-4, 1e-2]}}
training: {steps: 30, interval: 10}
objective: {maximize: val/accuracy}
sampler: {random: {seed: 3}}
budget: {trials: 3}
"""


@pytest.fixture
def session(sessions: Sessions) -> Session:
    return sessions.open(sessions.of(FILE), capacity=2)


def wait(sessions: Sessions, seconds: float) -> None:
    sessions.clock.now += seconds


def test_a_trial_starts_once_its_run_exists(sessions: Sessions, session: Session) -> None:
    assert session.next_assignment() is None
    [trial] = sessions.ledger.trials(session.sweep.id)
    assert trial.state == "WAITING"
    assert not session.finished
    session.writer.record_mlflow_runs({trial.key: "abc"})
    wait(sessions, LOOK_SECONDS)
    assignment = launch(session)
    assert assignment.trial_key == trial.key
    assert assignment.tracking == {
        "MLFLOW_TRACKING_URI": f"sqlite:///{sessions.paths.root.absolute()}/mlflow.db",
        "MLFLOW_RUN_ID": "abc",
    }


def test_only_the_first_trial_waits_for_a_server_that_is_away(sessions: Sessions, session: Session) -> None:
    assert session.next_assignment() is None
    for _ in range(round(LONGEST_WAIT / LOOK_SECONDS)):
        wait(sessions, LOOK_SECONDS)
        assert session.next_assignment() is None
    wait(sessions, LOOK_SECONDS)
    assert launch(session).tracking == {}
    assert launch(session).tracking == {}


def test_nothing_waits_for_other_scripts(sessions: Sessions) -> None:
    session = sessions.open(sessions.of(FILE.replace(", mlflow: true", "")))
    assert launch(session).tracking == {}
