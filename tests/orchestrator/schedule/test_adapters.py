"""The adapters through which Ray Tune uses a session."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from ray.exceptions import ActorDiedError
from ray.tune.experiment import Trial

from orchestrator.assignment import Outcome, shown_as
from orchestrator.schedule.adapters import (
    SessionCallback,
    SessionSearch,
    SessionStopper,
    registered,
    session_of,
)
from orchestrator.schedule.engines import Engines
from tests.orchestrator.session.sessions import Sessions, launch, outcome, sign


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
        assert stopper("any attempt", {"training": False})
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
        report = {"step": 10, "done": False, "queued": False, "training": False}
        assert stopper("any attempt", {**report, shown_as("val/accuracy"): value})
        assert not stopper(
            "any attempt", {**report, shown_as("val/accuracy"): 0.5, shown_as("val/loss"): value}
        )
        assert not stopper("any attempt", {**report, "queued": True})
        session.stop("enough", "INTERRUPTED")
        assert stopper("any attempt", {**report, "queued": True})
        assert not stopper("any attempt", {**report, "training": True}), "its steps are not saved yet"


def test_a_started_attempt_that_waits_for_a_new_engine_is_not_silent(tmp_path: Path) -> None:
    """Its first engine died after it had started; the wait for another device may exceed the deadline."""
    sessions = Sessions(tmp_path)
    session = sessions.open(sessions.sweep(1))
    attempt_id = launch(session).attempt_id
    trial = Trial("any", trial_id=attempt_id, stub=True)
    waiting = Outcome(attempt_id, 0, done=False, metrics={}, queued=True).to_result()
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
    waiting = sign(assignment, queued=True).to_result()
    with registered(session, Engines(lambda: 0)):
        SessionCallback(session.sweep.id, 60).on_trial_result(0, [trial], trial, waiting)
    assert not session.running[assignment.attempt_id].started


class Died(Trial):
    """A trial of Tune whose actor has died. Tune itself writes the error where a running Ray has its files.

    Args:
        attempt_id: Id of the trial.
        folder: Folder of the file.
    """

    def __init__(self, attempt_id: str, folder: Path) -> None:
        super().__init__("any", trial_id=attempt_id, stub=True)
        self._file = folder / f"{attempt_id}.txt"
        self._file.write_text(str(ActorDiedError()))

    @property
    def error_file(self) -> str:
        """Return the path of the file."""
        return str(self._file)


class SharedProcess:
    """The trials of a shared engine, whose common worker process dies again and again.

    Args:
        sessions: Sessions of the sweep.
        trials: Trials of the sweep.
    """

    def __init__(self, sessions: Sessions, trials: int) -> None:
        self._sessions, self._trials, self._engines = sessions, trials, Engines(lambda: 1)
        self.session = sessions.open(sessions.sweep(trials), capacity=trials)

    def die(self, *, after: int | None = None) -> None:
        """Launch every trial that is left, and let the process die, perhaps after a report of each.

        Args:
            after: Step of the reports.
        """
        session = self.session
        tune: list[Trial] = []
        self._sessions.clock.now += 100  # past every wait for a retry
        with registered(session, self._engines):
            callback = SessionCallback(session.sweep.id, 60)
            while (assignment := session.next_assignment()) is not None:
                seated = self._engines.seat(replace(assignment, gpu=0.25))
                session.started(seated.attempt_id)
                self._engines.entered(seated.attempt_id)
                self._engines.tested(seated.attempt_id, alone=seated.alone)
                if after is not None:
                    session.reported(seated.attempt_id, outcome(seated, after, 0.5))
                tune.append(Died(seated.attempt_id, self._sessions.folder))
            for trial in tune:
                callback.on_trial_error(0, tune, trial)

    @property
    def causes(self) -> list[list[str | None]]:
        """Return the causes of the ends of the attempts of each trial."""
        ledger, sweep_id = self._sessions.ledger, self.session.sweep.id
        return [[one.cause for one in ledger.trial_attempts(trial.key)] for trial in ledger.trials(sweep_id)]


def test_the_death_of_a_shared_process_is_charged_to_none_of_its_trials(tmp_path: Path) -> None:
    """This holds however often it dies, as long as they progress, and twice in a row if they do not."""
    shared = SharedProcess(Sessions(tmp_path), 3)
    shared.die(after=10)
    shared.die(after=20)
    shared.die()
    assert shared.causes == [["slot lost", "slot lost", "engine lost"]] * 3


def test_trials_whose_shared_process_always_dies_end(tmp_path: Path) -> None:
    """From the third death in a row on, the one that trains alone is charged, as for a dead engine."""
    sessions = Sessions(tmp_path)
    shared = SharedProcess(sessions, 2)
    deaths = 0
    while not shared.session.finished:
        shared.die()
        deaths += 1
        assert deaths < 30, shared.causes
    assert {trial.state for trial in sessions.ledger.trials(shared.session.sweep.id)} == {"FAILED"}
    for full in shared.causes:
        causes = [str(cause).partition(":")[0] for cause in full]  # the last one has a message
        assert causes[:3] == ["slot lost", "engine lost", "engine crash"]
        assert causes.count("engine crash") == 4
        assert set(causes) == {"slot lost", "engine lost", "engine crash"}
