"""Promotion: trials pause at their rungs, and the best ones of a rung go on, also after a killed driver."""

from __future__ import annotations

import random

import pytest
from ray.tune.schedulers import TrialScheduler

from orchestrator.assignment import Assignment
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.schedule import schedulers
from orchestrator.schedule.keyed import KeyedScheduler, KeyedTrial
from orchestrator.session.promotion import Rungs
from orchestrator.session.session import Session
from tests.orchestrator.session.sessions import SPACE, FixedShare, Sessions, launch, outcome


def arrive(rungs: Rungs, step: int, **values: float) -> dict[str, bool]:
    """Let trials report in order; return which of them go on."""
    return {key: rungs.goes_on(key, step, value) for key, value in values.items()}


def test_a_trial_goes_on_if_it_is_among_the_best_of_its_rung() -> None:
    rungs = Rungs((10, 40), 4)
    assert arrive(rungs, 10, a=0.5, b=0.4, c=0.3, d=0.6) == {"a": False, "b": False, "c": False, "d": True}
    assert rungs.promotable == []
    assert arrive(rungs, 10, e=0.1, f=0.1, g=0.1, h=0.1) == dict.fromkeys("efgh", False)
    assert rungs.promotable == ["a"], "two of eight go on, and one has done so already"


def test_less_is_better_if_the_objective_is_minimised() -> None:
    assert arrive(Rungs((10,), 2, sign=-1), 10, a=0.5, b=0.4) == {"a": False, "b": True}


def test_the_first_of_equal_trials_goes_on() -> None:
    rungs = Rungs((10,), 2)
    assert arrive(rungs, 10, a=0.5, b=0.5) == {"a": False, "b": False}
    assert rungs.promotable == ["a"]


def test_the_highest_rung_is_promoted_first() -> None:
    rungs = Rungs((10, 20), 2)
    arrive(rungs, 10, a=0.7, b=0.8, c=0.6, d=0.9, e=0.1, f=0.1)  # b and d go on at once, a may go on later
    arrive(rungs, 20, b=0.5, d=0.4)
    assert rungs.promotable == ["b", "a"]
    rungs.resume("b")
    assert rungs.promotable == ["a"]


def test_a_report_that_skips_rungs_counts_at_the_last_of_them() -> None:
    rungs = Rungs((10, 20), 2)
    arrive(rungs, 25, a=0.9)
    assert rungs.paused == {"a": 1}
    assert arrive(rungs, 10, b=0.1, c=0.2) == {"b": False, "c": True}


def test_a_failed_trial_counts_at_the_rung_that_it_has_not_reached() -> None:
    """One in four of those that have begun goes on, although two of four have diverged."""
    rungs = Rungs((10, 20), 4)
    arrive(rungs, 10, a=0.5, b=0.9)
    rungs.fail("c")
    assert rungs.promotable == []
    rungs.fail("d")
    assert rungs.promotable == ["b"]
    rungs.resume("b")
    rungs.fail("b")
    arrive(rungs, 10, e=0.1)
    arrive(rungs, 10, f=0.1, g=0.1, h=0.1)
    assert rungs.promotable == ["a"], "b has failed on its way to the second rung"


def test_a_trial_pauses_at_the_first_report_at_or_after_a_rung_alone() -> None:
    rungs = Rungs((10,), 2)
    assert arrive(rungs, 5, a=0.1) == {"a": True}
    assert arrive(rungs, 12, a=0.1) == {"a": False}
    assert arrive(rungs, 15, a=0.1) == {"a": True}
    assert rungs.paused == {}, "it reports, so it has been resumed"


def test_the_leader_is_the_best_of_the_highest_rung() -> None:
    rungs = Rungs((10, 20), 4)
    assert rungs.leader is None
    arrive(rungs, 10, a=0.5, b=0.9)
    assert rungs.leader == "b"
    rungs.resume("a")
    arrive(rungs, 20, a=0.1)
    assert rungs.leader == "a"


def test_a_rank_never_rises_while_a_trial_waits() -> None:
    """So a trial that was promoted is among the best at any earlier time at which it could have been."""
    draws = random.Random(0)
    rungs, ranks = Rungs((10,), 4), []
    for number in range(200):
        arrive(rungs, 10, **{f"t{number}": draws.random()})
        ranks.append([standing.key for standing in rungs._standings[0]].index("t0"))
    assert ranks == sorted(ranks)


# ------------------------------------------------------------------ sessions


def promoting(sessions: Sessions, trials: int, extra: str = "") -> SweepConfig:
    """Return a sweep whose only rung is at 10 of 15 steps, where one trial in two goes on."""
    asha = "scheduler: {asha: {mode: promote, reduction: 2, grace: 0.6}}"
    space = SPACE.replace("scheduler: {none: {}}", asha).replace("BUDGET", str(trials))
    return sessions.of(space.replace("steps: 30", "steps: 15").replace("interval: 10", "interval: 5") + extra)


class Driver:
    """A session and its scheduler, as Tune's loop connects them."""

    def __init__(self, sessions: Sessions, sweep: SweepConfig, capacity: int = 1) -> None:
        self.session: Session = sessions.open(sweep, capacity)
        reports = sessions.ledger.reports(sweep.id)
        self.scheduler: KeyedScheduler = schedulers.build(sweep, reports)
        self.session.reasons = self.scheduler.reasons
        self.session.settle_stopped(self.scheduler.stopped)
        self.session.follow(self.scheduler.rungs)

    def report(self, assignment: Assignment, step: int, value: float) -> bool:
        """Let a worker report; return True if the attempt has ended."""
        reported = outcome(assignment, step, value)
        trial = KeyedTrial(assignment.attempt_id)
        decision = (
            TrialScheduler.STOP
            if reported.done
            else self.scheduler.on_trial_result(None, trial, reported.to_result())  # type: ignore[arg-type]
        )
        self.session.reported(assignment.attempt_id, reported)
        if decision == TrialScheduler.STOP:
            self.session.completed(assignment.attempt_id)
        return decision == TrialScheduler.STOP

    def train(self, value: float) -> tuple[str, int]:
        """Launch an attempt and train it until it ends; return the label of its trial and its last step."""
        assignment = launch(self.session)
        first = assignment.resume.step if assignment.resume else 0
        step = next(
            step for step in range(first + 5, 20, 5) if self.report(assignment, step, value + step / 100)
        )
        return assignment.trial_key.rpartition("-")[2], step


def states(sessions: Sessions, sweep: SweepConfig) -> dict[int, tuple[str, int]]:
    return {trial.number: (trial.state, trial.step) for trial in sessions.ledger.trials(sweep.id)}


def test_a_paused_trial_frees_its_place_and_is_resumed_from_its_checkpoint(sessions: Sessions) -> None:
    sweep = promoting(sessions, 4)
    driver = Driver(sessions, sweep)
    rung = 10
    assert [driver.train(value) for value in (0.5, 0.4)] == [("0", rung), ("1", rung)]
    assert states(sessions, sweep) == {0: ("WAITING", rung), 1: ("WAITING", rung)}
    assert driver.train(0.5) == ("0", 15), "the best of two is promoted before a new trial begins"
    assert [driver.train(value) for value in (0.3, 0.2)] == [("2", rung), ("3", rung)]
    assert driver.train(0.4) == ("1", 15)
    assert driver.session.next_assignment() is None
    assert driver.session.finished
    assert states(sessions, sweep) == {
        0: ("COMPLETE", 15),
        1: ("COMPLETE", 15),
        2: ("PRUNED", rung),
        3: ("PRUNED", rung),
    }


def test_a_trial_that_is_among_the_best_when_it_reports_is_not_interrupted(sessions: Sessions) -> None:
    driver = Driver(sessions, promoting(sessions, 4))
    assert driver.train(0.1) == ("0", 10)
    assert driver.train(0.9) == ("1", 15)
    assert [attempt.number for attempt in sessions.ledger.attempts(driver.session.sweep.id)] == [1, 1]


def test_waiting_costs_nothing(sessions: Sessions) -> None:
    driver = Driver(sessions, promoting(sessions, 4))
    driver.train(0.5)
    before = driver.session._attempts.spent()
    sessions.clock.now += 3600.0
    assert driver.session._attempts.spent() == before


def test_few_trials_complete_one_of_them(sessions: Sessions) -> None:
    sweep = promoting(sessions, 1)
    driver = Driver(sessions, sweep)
    assert driver.train(0.5) == ("0", 10)
    assert not driver.session.finished
    assert driver.train(0.5) == ("0", 15)
    assert driver.session.finished
    assert states(sessions, sweep) == {0: ("COMPLETE", 15)}


def test_the_next_leader_completes_if_the_first_one_fails(sessions: Sessions) -> None:
    sweep = promoting(sessions, 3)
    driver = Driver(sessions, sweep, capacity=3)
    attempts = [launch(driver.session) for _ in range(3)]
    for attempt, value in zip(attempts, (0.9, 0.8, 0.7), strict=True):
        driver.report(attempt, 10, value)
    for label in ("0", "1"):
        attempt = launch(driver.session)
        assert attempt.trial_key.rpartition("-")[2] == label
        driver.session.failed(attempt.attempt_id, "non-finite")
    assert driver.train(0.5) == ("2", 15)
    assert driver.session.finished


def test_confirmations_begin_when_no_trial_can_be_promoted(sessions: Sessions) -> None:
    driver = Driver(sessions, promoting(sessions, 2, "confirm: {seeds: 1}\n"))
    assert [driver.train(value) for value in (0.5, 0.4, 0.5)] == [("0", 10), ("1", 10), ("0", 15)]
    assert driver.train(0.5) == ("c0", 15)
    assert driver.session.finished
    assert states(sessions, driver.session.sweep)[1] == ("PRUNED", 10)


@pytest.mark.parametrize("reason", ["shared", "stopped"])
def test_a_trial_that_gives_its_place_up_at_a_rung_pauses_there(sessions: Sessions, reason: str) -> None:
    """Tune shows the report to the stopper alone, then to the scheduler as the last one of the attempt."""
    sessions.share = FixedShare(1)
    sweep = promoting(sessions, 4)
    driver = Driver(sessions, sweep)
    attempt = launch(driver.session)
    if reason == "shared":
        sessions.share.leaving = {attempt.attempt_id}
    else:
        driver.session.stop("stopped by a person", "INTERRUPTED")
    reported = outcome(attempt, 10, 0.5)
    driver.session.sheds(attempt.attempt_id)
    driver.scheduler.on_trial_complete(None, KeyedTrial(attempt.attempt_id), reported.to_result())  # type: ignore[arg-type]
    driver.session.reported(attempt.attempt_id, reported)
    driver.session.completed(attempt.attempt_id)
    sessions.share.leaving = frozenset()
    if reason == "stopped":
        driver = Driver(sessions, sweep)
    assert launch(driver.session).trial_key.endswith("-1"), "trial 0 is not resumed: it is not promoted"


def test_a_killed_driver_forgets_no_pause_and_no_promotion(sessions: Sessions) -> None:
    sweep = promoting(sessions, 6)
    driver = Driver(sessions, sweep)
    assert [driver.train(value) for value in (0.5, 0.4)] == [("0", 10), ("1", 10)]
    promoted = launch(driver.session)  # trial 0; the driver dies before it reports
    sessions.writer(sweep).lose_attempts()
    driver = Driver(sessions, sweep)
    again = launch(driver.session)
    assert (again.trial_key, again.resume) == (promoted.trial_key, promoted.resume)
    assert driver.session._rungs.paused == {f"{sweep.id}-1": 0}


def test_a_driver_killed_between_a_report_and_its_pause_has_paused_the_trial(sessions: Sessions) -> None:
    sweep = promoting(sessions, 4)
    driver = Driver(sessions, sweep)
    attempt = launch(driver.session)
    driver.session.reported(attempt.attempt_id, outcome(attempt, 10, 0.5))
    sessions.writer(sweep).lose_attempts()
    driver = Driver(sessions, sweep)
    assert launch(driver.session).trial_key.endswith("-1")
    assert driver.session._rungs.paused == {f"{sweep.id}-0": 0}


def test_a_trial_that_is_never_promoted_has_one_attempt(sessions: Sessions) -> None:
    """A second one, from which it were pruned, would look like a promotion if the driver died in between."""
    sweep = promoting(sessions, 2)
    driver = Driver(sessions, sweep)
    assert [driver.train(value) for value in (0.5, 0.4, 0.5)] == [("0", 10), ("1", 10), ("0", 15)]
    assert driver.session.next_assignment() is None
    pruned = sessions.ledger.trials(sweep.id)[1]
    assert (pruned.state, pruned.attempts, pruned.value, pruned.best_step) == ("PRUNED", 1, 0.5, 10)
    assert pruned.finished_at is not None
    assert str(pruned.cause).startswith("paused at step 10 with ")
    assert str(pruned.cause).endswith("not promoted before the search ended")


def test_an_ended_trial_is_never_promoted(sessions: Sessions) -> None:
    """An extension adds trials: those that were pruned before remain at their rungs, for comparison."""
    sweep = promoting(sessions, 2)
    driver = Driver(sessions, sweep)
    assert [driver.train(value) for value in (0.5, 0.4, 0.5)] == [("0", 10), ("1", 10), ("0", 15)]
    assert driver.session.next_assignment() is None
    extended = Driver(sessions, sweep)
    assert extended.session._rungs.paused == {}
    assert extended.session.finished
