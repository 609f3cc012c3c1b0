"""The adapters through which Ray Tune uses a session."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest
from ray.tune.experiment import Trial

from orchestrator.assignment import Outcome
from orchestrator.schedule.adapters import (
    SessionCallback,
    SessionSearch,
    SessionStopper,
    registered,
    session_of,
)
from orchestrator.schedule.engines import Engines
from tests.orchestrator.session.sessions import Sessions, launch


def test_the_adapters_can_be_pickled_and_find_the_session(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    session = sessions.open(sessions.sweep(1))
    sweep_id = session.sweep.id
    with registered(session, Engines(lambda: 0)):
        search = pickle.loads(pickle.dumps(SessionSearch(sweep_id)))
        stopper = pickle.loads(pickle.dumps(SessionStopper(sweep_id)))
        pickle.dumps(SessionCallback(sweep_id, 600))
        assert not search.is_finished()
        assert not stopper.stop_all()
        session.stop("stopped by a test", "INTERRUPTED")
        assert search.is_finished()
        assert stopper.stop_all()
        assert stopper("any attempt", {})
    with pytest.raises(KeyError):
        session_of(sweep_id)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_objective_that_is_not_finite_ends_the_attempt_before_the_stopping_rule(
    tmp_path: Path, value: float
) -> None:
    """Tune calls the stopper first; a NaN in a rung of ASHA would affect every other trial."""
    sessions = Sessions(tmp_path)
    session = sessions.open(sessions.sweep(1))
    with registered(session, Engines(lambda: 0)):
        stopper = SessionStopper(session.sweep.id)
        report = {"step": 10, "done": False, "queued": False}
        assert stopper("any attempt", {**report, "val/accuracy": value})
        assert not stopper("any attempt", {**report, "val/accuracy": 0.5, "val/loss": value})
        assert not stopper("any attempt", {**report, "queued": True})


def test_a_started_attempt_that_waits_for_a_new_engine_is_not_silent(tmp_path: Path) -> None:
    """Its first engine died after it had started; the wait for another device may exceed the deadline."""
    sessions = Sessions(tmp_path)
    session = sessions.open(sessions.sweep(1))
    attempt_id = launch(session).attempt_id
    trial = Trial("any", trial_id=attempt_id, stub=True)
    waiting = Outcome(0, done=False, metrics={}, queued=True).to_result()
    with registered(session, Engines(lambda: 0)):
        callback = SessionCallback(session.sweep.id, 60)
        for _ in range(40):
            sessions.clock.now += 5
            callback.on_trial_result(0, [trial], trial, waiting)
            assert session.silent(60) == []
        assert session.running[attempt_id].last is None


def test_an_attempt_that_waits_for_its_first_engine_has_not_started(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    session = sessions.open(sessions.sweep(1))
    assignment = session.next_assignment()
    assert assignment is not None
    trial = Trial("any", trial_id=assignment.attempt_id, stub=True)
    waiting = Outcome(0, done=False, metrics={}, queued=True).to_result()
    with registered(session, Engines(lambda: 0)):
        SessionCallback(session.sweep.id, 60).on_trial_result(0, [trial], trial, waiting)
    assert not session.running[assignment.attempt_id].started
