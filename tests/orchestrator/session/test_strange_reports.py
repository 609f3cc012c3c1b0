"""Malformed reports of workers end their trial, never the driver."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.assignment import Assignment
from orchestrator.session.session import Session
from tests.orchestrator.session.sessions import Sessions, launch, outcome, train


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path)


def attempts(sessions: Sessions, assignment: Assignment) -> list[tuple[str, str | None]]:
    """Return states and causes of the attempts of a trial."""
    return [(one.state, one.cause) for one in sessions.ledger.trial_attempts(assignment.trial_key)]


def test_a_report_of_another_attempt_is_refused_recorded_and_not_charged(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(2), capacity=2)
    mine, other = launch(session), launch(session)
    session.reported(mine.attempt_id, outcome(mine, 10, 0.5))
    session.reported(mine.attempt_id, outcome(other, 20, 0.9))
    session.reported(mine.attempt_id, outcome(mine, 30, 0.6))  # nothing is taken from that process any more
    session.completed(mine.attempt_id)
    assert attempts(sessions, mine) == [("LOST", "foreign report")]
    assert [one.step for one in sessions.ledger.trial_reports(mine.trial_key)] == [10]
    assert sessions.ledger.trial_reports(other.trial_key) == []
    events = [row.event for row in sessions.ledger.pending(session.sweep.id, 100).events]
    [noted] = [one.payload["tags"] for one in events if one.run == mine.trial_key and one.kind == "tags"]
    refused = f"a report must be about {mine.attempt_id} (got one of {other.attempt_id} at step 20)"
    assert noted == {"attempt.1.refused": refused}
    train(session, other)
    sessions.clock.now += 10
    again = launch(session)
    assert (again.trial_key, again.resume and again.resume.step) == (mine.trial_key, 10)
    session.reported(again.attempt_id, outcome(again, 20, 0.6))
    session.reported(again.attempt_id, outcome(again, 30, 0.7))
    session.completed(again.attempt_id)
    trial = sessions.ledger.trial(mine.trial_key)
    assert (trial.state, trial.value) == ("COMPLETE", 0.7)


def test_a_process_that_refuses_a_call_for_another_loan_loses_the_attempt_uncharged(
    sessions: Sessions,
) -> None:
    session = sessions.open(sessions.sweep(1))
    for _ in range(9):
        assignment = launch(session)
        session.refuse(assignment.attempt_id, "a call must be made for the present loan of the process")
        session.failed(assignment.attempt_id, "error", "the text of the error")
        sessions.clock.now += 10
    assert attempts(sessions, assignment) == [("LOST", "foreign report")] * 9
    train(session, launch(session))
    assert sessions.ledger.trial(assignment.trial_key).state == "COMPLETE"


def failed_with(sessions: Sessions, session: Session, assignment: Assignment) -> str:
    """Let the trial use its retry in the same way; return why it has failed, and let the other one train."""
    trial = sessions.ledger.trial(assignment.trial_key)
    assert trial.state == "FAILED"
    train(session, launch(session))
    assert session.finished
    return str(trial.cause)


@pytest.mark.parametrize(
    ("changes", "must"),
    [
        ({"metrics": [0.5]}, "hold metrics by name (got [0.5])"),
        ({"metrics": {"val/loss": 1.0}}, "hold val/accuracy, the objective (got val/loss)"),
        ({"metrics": {"val/accuracy": "0.5"}}, "hold a number for each metric (got 'val/accuracy': '0.5')"),
        ({"metrics": {"val/accuracy": True}}, "hold a number for each metric (got 'val/accuracy': True)"),
        ({"metrics": {"val/accuracy": None}}, "hold a number for each metric (got 'val/accuracy': None)"),
        ({"metrics": {"val/accuracy": 0.5, 3: 1.0}}, "hold a number for each metric (got 3: 1.0)"),
        ({"step": True}, "have a whole step from 0 to 9007199254740992 (got True)"),
        ({"step": 10.0}, "have a whole step from 0 to 9007199254740992 (got 10.0)"),
        ({"step": -1}, "have a whole step from 0 to 9007199254740992 (got -1)"),
        ({"step": 1 << 60}, "have a whole step from 0 to 9007199254740992 (got 1152921504606846976)"),
        ({"step": None}, "have a whole step from 0 to 9007199254740992 (got None)"),
        ({"checkpoint": None}, "come with a checkpoint (got none at step 10)"),
    ],
)
def test_a_report_that_no_driver_can_use_fails_its_trial_with_the_cause(
    sessions: Sessions, changes: dict[str, Any], must: str
) -> None:
    session = sessions.open(sessions.sweep(2))
    for _ in range(2):
        assignment = launch(session)
        session.reported(assignment.attempt_id, replace(outcome(assignment, 10, 0.5), **changes))
        session.completed(assignment.attempt_id)
        sessions.clock.now += 100
    assert failed_with(sessions, session, assignment) == f"error: a report must {must}"
    assert sessions.ledger.trial_reports(assignment.trial_key) == []


@pytest.mark.parametrize("step", [10, 30])
def test_a_trial_that_ends_without_a_value_has_failed(sessions: Sessions, step: int) -> None:
    """By its own word that it is complete, or at its last step."""
    session = sessions.open(sessions.sweep(2))
    assignment = launch(session)
    silent = replace(outcome(assignment, step, math.nan), metrics={}, done=True, complete=step == 10)
    session.reported(assignment.attempt_id, silent)
    session.completed(assignment.attempt_id)
    why = f"error: a trial must report a finite val/accuracy before it ends (got none by step {step})"
    assert failed_with(sessions, session, assignment) == why


def test_a_driver_goes_on_from_a_trial_whose_last_report_had_no_value(sessions: Sessions) -> None:
    """An earlier driver was killed after the last step was recorded: another attempt would train nothing."""
    sweep = sessions.sweep(2)
    session = sessions.open(sweep)
    assignment = launch(session)
    session.reported(assignment.attempt_id, replace(outcome(assignment, 30, math.nan), metrics={}, done=True))
    session = sessions.open(sweep)
    other = launch(session)
    assert other.trial_key != assignment.trial_key
    trial = sessions.ledger.trial(assignment.trial_key)
    assert (trial.state, trial.step, trial.value) == ("FAILED", 30, None)
