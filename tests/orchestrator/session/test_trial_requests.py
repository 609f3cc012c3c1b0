"""A user stops one trial, or exempts it from early stopping; a killed driver carries it out once."""

from __future__ import annotations

from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler

from orchestrator.api.replays import repeated
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.queue.trial_requests import ask_about_trial, pending_requests
from orchestrator.ledger.sweeps.records import TrialRecord, UserDecision
from orchestrator.schedule import schedulers
from orchestrator.schedule.keyed import KeyedScheduler, KeyedTrial
from orchestrator.schedule.scheduler_replay import Replay, recorded_curves
from orchestrator.session.session import Session
from tests.orchestrator.session.sessions import SPACE, Sessions, failure, launch, number, outcome, train

ADA_STOPPED = "stopped at step 10 by ada"


def ask(sessions: Sessions, sweep: SweepConfig, trial: int, decision: UserDecision = "stop") -> None:
    """Let a user request a decision about a trial of the search."""
    ask_about_trial(sessions.ledger, f"{sweep.id}-{trial}", decision, Asked("ada", decision, sweep.id))


def ended(sessions: Sessions, sweep: SweepConfig, trial: int) -> TrialRecord:
    """Return the row of a trial of the search."""
    return sessions.ledger.trial(f"{sweep.id}-{trial}")


def reopened(sessions: Sessions, sweep: SweepConfig) -> Session:
    """Return the session of the driver that follows a killed one."""
    sessions.writer(sweep).lose_attempts()
    return sessions.open(sweep)


def test_a_running_trial_is_saved_and_its_place_goes_to_the_next_one(sessions: Sessions) -> None:
    sweep = sessions.sweep(3)
    session = sessions.open(sweep, capacity=1)
    first = launch(session)
    session.reported(first.attempt_id, outcome(first, 10, 0.5))
    ask(sessions, sweep, 0)
    session.check_limits()
    assert session.overdue.keys() == {first.attempt_id}, "the worker is asked to save at once"
    assert session.sheds(first.attempt_id)
    session.completed(first.attempt_id)
    stopped = ended(sessions, sweep, 0)
    assert (stopped.state, stopped.value, stopped.cause) == ("PRUNED", 0.5, ADA_STOPPED)
    assert stopped.system_attrs["stop"]["by"] == "ada"
    assert not pending_requests(sessions.ledger, sweep.id).trials
    assert number(launch(session)) == 1
    assert not session.overdue


def test_a_trial_that_ends_meanwhile_is_complete(sessions: Sessions) -> None:
    sweep = sessions.sweep(1)
    session = sessions.open(sweep)
    first = launch(session)
    ask(sessions, sweep, 0)
    session.check_limits()
    train(session, first)
    session.check_limits()
    assert ended(sessions, sweep, 0).state == "COMPLETE"
    assert session.finished


def test_a_trial_that_has_not_reported_ends_without_a_value(sessions: Sessions) -> None:
    sweep = sessions.sweep(2)
    session = sessions.open(sweep, capacity=1)
    waiting = session.next_assignment()
    assert waiting is not None, "launched, and no worker has taken it"
    ask(sessions, sweep, 0)
    session.check_limits()
    assert (ended(sessions, sweep, 0).state, ended(sessions, sweep, 0).value) == ("PRUNED", None)
    assert waiting.attempt_id in session.overdue, "a worker that starts all the same leaves"
    assert session.sheds(waiting.attempt_id)
    assert number(launch(session)) == 1


@pytest.mark.parametrize("how", ["killed worker", "error"])
def test_a_stopped_trial_is_not_retried(sessions: Sessions, how: str) -> None:
    sweep = sessions.sweep(1)
    session = sessions.open(sweep)
    first = launch(session)
    session.reported(first.attempt_id, outcome(first, 10, 0.5))
    ask(sessions, sweep, 0)
    session.check_limits()
    if how == "error":
        session.reported(first.attempt_id, failure(first, 15, "error"))
        session.completed(first.attempt_id)
    else:
        sessions.clock.now += 1_000.0
        session.silent(1e9)
        sessions.clock.now += 61.0
        session.reported(first.attempt_id, outcome(first, 20, 0.4))
        session.condemn(first.attempt_id, "hung")
        session.failed(first.attempt_id, "worker lost")
    assert ended(sessions, sweep, 0).state == "PRUNED"
    assert ended(sessions, sweep, 0).value == 0.5
    assert session.finished


@pytest.mark.parametrize("is_taken", [False, True], ids=["before", "after"])
def test_a_driver_killed_between_request_and_effect_carries_it_out_once(
    sessions: Sessions, is_taken: bool
) -> None:
    """It dies before or after it has taken the request; the next driver has one decision in any case."""
    sweep = sessions.sweep(2)
    session = sessions.open(sweep, capacity=1)
    first = launch(session)
    session.reported(first.attempt_id, outcome(first, 10, 0.5))
    ask(sessions, sweep, 0)
    if is_taken:
        session.check_limits()
    session = reopened(sessions, sweep)
    session.take_requests()
    assert (ended(sessions, sweep, 0).state, ended(sessions, sweep, 0).cause) == ("PRUNED", ADA_STOPPED)
    assert number(launch(session)) == 1
    assert len(sessions.ledger.trial_attempts(f"{sweep.id}-0")) == 1
    assert not pending_requests(sessions.ledger, sweep.id).trials


def test_a_request_about_a_trial_that_has_ended_is_dropped(sessions: Sessions) -> None:
    sweep = sessions.sweep(1)
    session = sessions.open(sweep)
    first = launch(session)
    train(session, first)
    ask(sessions, sweep, 0)
    session.check_limits()
    assert ended(sessions, sweep, 0).state == "COMPLETE"
    assert "stop" not in ended(sessions, sweep, 0).system_attrs
    assert not pending_requests(sessions.ledger, sweep.id).trials


def test_the_last_of_two_requests_counts(sessions: Sessions) -> None:
    sweep = sessions.sweep(1)
    session = sessions.open(sweep)
    launch(session)
    ask(sessions, sweep, 0)
    ask(sessions, sweep, 0, "exempt")
    session.check_limits()
    assert not session.overdue
    assert session.exempt == {f"{sweep.id}-0"}


def test_a_stopped_confirmation_is_not_repeated(sessions: Sessions) -> None:
    sweep = sessions.sweep(1, "confirm: {seeds: 1}\n")
    session = sessions.open(sweep)
    train(session, launch(session))
    confirmation = launch(session)
    ask_about_trial(sessions.ledger, f"{sweep.id}-c0", "stop", Asked("ada", "stop", sweep.id))
    session.check_limits()
    session.completed(confirmation.attempt_id)
    assert sessions.ledger.trial(f"{sweep.id}-c0").state == "PRUNED"
    assert session.finished


# ------------------------------------------------------------------ early stopping

RULES = {
    "asha": "{asha: {reduction: 2, grace: 0.3, keep: 0}}",
    "promotion": "{asha: {mode: promote, reduction: 2, grace: 0.3}}",
    "median": "{median: {grace: 0.3, trials: 1}}",
}


class Driver:
    """A session and its scheduler, as Tune's loop connects them."""

    def __init__(self, sessions: Sessions, sweep: SweepConfig) -> None:
        self.session = sessions.open(sweep, capacity=1)
        self.session.take_requests()
        reports = sessions.ledger.reports(sweep.id)
        self.scheduler: KeyedScheduler = schedulers.build(sweep, reports, exempt=self.session.exempt)
        self.session.reasons = self.scheduler.reasons
        self.session.settle_stopped(self.scheduler.stopped)
        self.session.follow(self.scheduler.rungs)

    def train(self, value: float, until: int = 30) -> tuple[int, int]:
        """Train the next attempt until it ends or has reached a step; return its trial and its last step."""
        assignment = launch(self.session)
        first = assignment.resume.step if assignment.resume else 0
        trial: Any = KeyedTrial(assignment.attempt_id)
        for step in range(first + 10, until + 1, 10):
            reported = outcome(assignment, step, value)
            decision = self.scheduler.on_trial_result(None, trial, reported.to_result())
            self.session.reported(assignment.attempt_id, reported)
            if reported.done or decision == TrialScheduler.STOP:
                self.session.completed(assignment.attempt_id)
                break
        return number(assignment), step


def early(sessions: Sessions, rule: str, trials: int = 4) -> SweepConfig:
    """Return a sweep of trials of 30 steps that a rule first compares at step 10."""
    text = SPACE.replace("{none: {}}", RULES[rule]).replace("BUDGET", str(trials))
    return sessions.of(text)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("is_killed", [False, True], ids=["undisturbed", "killed"])
def test_an_exempt_trial_runs_to_its_last_step(sessions: Sessions, rule: str, is_killed: bool) -> None:
    """The others are stopped as they would be, and a replay repeats every decision."""
    sweep = early(sessions, rule)
    driver = Driver(sessions, sweep)
    best = driver.train(0.9)
    if best[1] < 30:
        best = driver.train(0.9)  # promotion pauses the first trial of a rung
    launched = driver.session.next_assignment()
    assert launched is not None
    ask(sessions, sweep, number(launched), "exempt")
    if is_killed:
        sessions.writer(sweep).lose_attempts()
        driver = Driver(sessions, sweep)
    else:
        driver.session.check_limits()
        driver.session.failed(launched.attempt_id, "driver lost")
    exempt, step = driver.train(0.1)
    assert (exempt, step) == (number(launched), 30)
    assert ended(sessions, sweep, exempt).state == "COMPLETE"
    left = 4 - len(sessions.ledger.trials(sweep.id))
    assert [driver.train(0.05)[1] for _ in range(left)] == [10] * left
    points = sessions.ledger.curves(sweep.id, sweep.finite_metrics)
    trials = sessions.ledger.trials(sweep.id, role="search")
    assert not repeated(sweep, trials, points).differing
    curves = recorded_curves(sweep, trials, points)
    replayed = Replay(sweep, lambda index: curves[index] if index < len(curves) else None, 1).run()
    assert replayed.endings[exempt] == ("COMPLETE", 30)


def test_a_paused_trial_that_is_exempt_goes_on_at_once(sessions: Sessions) -> None:
    sweep = early(sessions, "promotion")
    driver = Driver(sessions, sweep)
    assert driver.train(0.5) == (0, 10)
    ask(sessions, sweep, 0, "exempt")
    driver.session.check_limits()
    assert driver.train(0.5) == (0, 30)


def test_a_replay_ends_a_trial_where_a_user_has_stopped_it(sessions: Sessions) -> None:
    """Neither the recorded scheduler nor another one is charged for what the user has prevented."""
    sweep = early(sessions, "median")
    driver = Driver(sessions, sweep)
    assert driver.train(0.5) == (0, 30)
    assert driver.train(0.9, until=20) == (1, 20)
    ask(sessions, sweep, 1)
    driver.session.check_limits()
    [attempt] = driver.session.running
    driver.session.completed(attempt)
    assert ended(sessions, sweep, 1).cause == "stopped at step 20 by ada"
    points = sessions.ledger.curves(sweep.id, sweep.finite_metrics)
    trials = sessions.ledger.trials(sweep.id, role="search")
    assert not repeated(sweep, trials, points).differing
    curves = recorded_curves(sweep, trials, points)
    replayed = Replay(sweep, lambda index: curves[index] if index < len(curves) else None, 1).run()
    assert replayed.endings[1] == ("PRUNED", 20)
    assert not replayed.unknown


def test_an_exempt_trial_is_not_replaced_in_a_population(sessions: Sessions) -> None:
    pbt = "{pbt: {mutations: [learning_rate], period: 0.34, quantile: 0.5}}"
    sweep = sessions.of(SPACE.replace("{none: {}}", pbt).replace("BUDGET", "2"))
    session = sessions.open(sweep)
    worse, better = launch(session), launch(session)
    for attempt, value in ((worse, 0.1), (better, 0.9)):
        session.reported(attempt.attempt_id, outcome(attempt, 10, value))
    assert session.exploit(worse.trial_key, 10, [better.trial_key])
    ask(sessions, sweep, number(worse), "exempt")
    session.check_limits()
    assert not session.exploit(worse.trial_key, 10, [better.trial_key])


def test_a_search_whose_trials_were_all_stopped_ends_without_confirmations(sessions: Sessions) -> None:
    """A pruned trial is never chosen, so there is nothing to confirm."""
    sweep = sessions.sweep(1, "confirm: {seeds: 1}\n")
    session = sessions.open(sweep, capacity=1)
    only = launch(session)
    session.reported(only.attempt_id, outcome(only, 10, 0.5))
    ask(sessions, sweep, 0)
    session.check_limits()
    session.completed(only.attempt_id)
    assert ended(sessions, sweep, 0).state == "PRUNED"
    assert session.next_assignment() is None
    assert session.finished
    assert sessions.open(sweep).finished, "for the next driver, too"
