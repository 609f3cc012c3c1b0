"""The session's decisions, on a real ledger and a real study; tests report outcomes as a worker would."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from orchestrator.assignment import Outcome
from orchestrator.errors import NoSpace
from orchestrator.ledger.sweeps.pareto import read_front
from orchestrator.ledger.sweeps.selection import best_checkpoint, best_of_sweep
from orchestrator.session.attempts import DEAD_NODE_SECONDS, LEAVE_SECONDS
from orchestrator.session.limits import wait_before_retry
from orchestrator.storage.paths import checkpoint_stem
from orchestrator.study.study import Study
from tests.orchestrator.session.sessions import (
    NODE_WAIT,
    SPACE,
    FixedShare,
    Sessions,
    failure,
    launch,
    number,
    outcome,
    sign,
    step_of,
    step_resumed,
    train,
)


def test_as_many_attempts_are_launched_as_fit(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(5), capacity=2)
    first, second = launch(session), launch(session)
    assert session.next_assignment() is None
    train(session, first)
    third = launch(session)
    assert [number(assignment) for assignment in (first, second, third)] == [0, 1, 2]


def test_a_trial_is_in_the_ledger_before_it_is_launched(sessions: Sessions) -> None:
    sweep = sessions.sweep(1)
    assignment = launch(sessions.open(sweep))
    trial = sessions.ledger.trial(assignment.trial_key)
    assert trial.state == "RUNNING"
    assert sweep.settings(trial.params, trial.seed) == assignment.settings


def test_complete_trials_keep_their_best_value_and_step(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(1))
    assignment = launch(session)
    for step, value in ((10, 0.5), (20, 0.7), (30, 0.6)):
        session.reported(assignment.attempt_id, outcome(assignment, step, value))
    session.completed(assignment.attempt_id)
    trial = sessions.ledger.trial(assignment.trial_key)
    assert (trial.state, trial.value, trial.best_step) == ("COMPLETE", 0.7, 20)
    assert session.finished


def test_a_trial_that_the_scheduler_stops_is_pruned(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(1))
    assignment = launch(session)
    train(session, assignment, until=20)
    assert sessions.ledger.trial(assignment.trial_key).state == "PRUNED"


def test_superseded_checkpoints_are_deleted_and_the_best_is_kept(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(1))
    assignment = launch(session)
    for step, value in ((10, 0.9), (20, 0.5), (30, 0.6)):
        session.reported(assignment.attempt_id, outcome(assignment, step, value))
    session.check_limits()
    kept = {Path(row.path).name for row in sessions.ledger.trial_checkpoints(assignment.trial_key)}
    on_disk = {folder.name for folder in Path(assignment.checkpoints).iterdir()}
    assert on_disk == kept
    assert {step_of(name) for name in on_disk} >= {10, 30}


@pytest.mark.parametrize("change", ["record_report", "end_attempt"])
def test_nothing_is_learnt_from_a_value_that_is_not_committed(
    sessions: Sessions, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The study, the board and the running attempt change after the commit."""
    session = sessions.open(sessions.sweep(1))
    assignment = launch(session)
    study = session._attempts._study
    session.reported(assignment.attempt_id, outcome(assignment, 20, 0.5))

    def full(*_: object, **__: object) -> None:
        raise NoSpace("disk", "needs space", "none", "Free some.")

    with monkeypatch.context() as patch:
        patch.setattr(session.writer, change, full)
        with pytest.raises(NoSpace):
            train(session, assignment, value=0.9)
    (trial,) = study.trials()
    values = {20: 0.5} if change == "record_report" else {30: 0.9}
    assert trial.intermediate_values == values
    assert not trial.state.is_finished()
    assert session.progress().best_value == max(values.values())
    assert list(session.running) == [assignment.attempt_id]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_trial_whose_value_is_not_finite_has_diverged(sessions: Sessions, value: float) -> None:
    session = sessions.open(sessions.sweep(1))
    assignment = launch(session)
    session.reported(assignment.attempt_id, outcome(assignment, 10, value))
    session.completed(assignment.attempt_id)
    trial = sessions.ledger.trial(assignment.trial_key)
    assert trial.state == "DIVERGED"
    assert trial.cause == f"diverged at step 10: val/accuracy is {value}"
    assert trial.value is None
    assert sessions.ledger.failures(session.sweep.id) == {}
    assert session.finished


def test_a_trial_that_diverges_keeps_the_value_of_its_best_report(sessions: Sessions) -> None:
    """Its checkpoint of that step exists, so it can be chosen; the sampler is not shown it."""
    session = sessions.open(sessions.sweep(2))
    good, other = launch(session), launch(session)
    for step, value in ((10, 0.93), (20, 0.91), (30, math.nan)):
        session.reported(good.attempt_id, outcome(good, step, value))
    session.completed(good.attempt_id)
    train(session, other, value=0.5)
    trial = sessions.ledger.trial(good.trial_key)
    assert (trial.state, trial.value, trial.best_step) == ("DIVERGED", 0.93, 10)
    assert trial.cause == "diverged at step 30: val/accuracy is nan"
    best = best_of_sweep(sessions.ledger, session._record, with_checkpoint=True)
    assert best is not None
    assert best.key == good.trial_key
    assert session.progress().best_key == good.trial_key
    assert session._attempts._study.trials()[0].state == TrialState.FAIL
    rebuilt = Study(session.sweep, sessions.ledger.trials(session.sweep.id, role="search"))
    assert rebuilt.trials()[0].state == TrialState.FAIL


def test_no_trial_is_the_best_of_several_objectives_without_a_preference(sessions: Sessions) -> None:
    goals = "maximize: val/accuracy, minimize: val/loss"
    for objective, named in ((goals, False), (f"{goals}, prefer: val/accuracy", True)):
        session = sessions.open(sessions.sweep(2, objective=objective), capacity=1)
        for value, loss in ((0.9, 2.0), (0.5, 1.0)):
            assignment = launch(session)
            metrics = {"val/accuracy": value, "val/loss": loss}
            for step in (10, 20, 30):
                session.reported(assignment.attempt_id, outcome(assignment, step, value, metrics=metrics))
            session.completed(assignment.attempt_id)
        assert session.finished
        best = best_of_sweep(sessions.ledger, session._record)
        assert (best is not None, session.progress().best_key is not None) == (named, named)
        front = read_front(sessions.ledger, session._record)
        assert [trial.label for trial in front.trials] == ["0", "1"]


CURVE = ((10, 0.9), (20, 0.5), (30, 0.7))


@pytest.mark.parametrize(
    ("of", "value", "best_step"),
    [
        ("best", 0.9, 10),
        ("last", 0.7, 30),
        ("mean of last 2", 0.6, 30),
        ("mean of last 5", 0.7, 30),
    ],
)
def test_the_file_says_which_reports_are_the_value_of_a_trial(
    sessions: Sessions, of: str, value: float, best_step: int
) -> None:
    """The checkpoint belongs to the value, whichever driver has seen the reports."""
    sweep = sessions.sweep(2, objective=f"maximize: val/accuracy, of: {of}")
    session = sessions.open(sweep, capacity=1)
    first = launch(session)
    for step, reported in CURVE[:2]:
        session.reported(first.attempt_id, outcome(first, step, reported))
    session = sessions.open(sweep, capacity=1)
    again = launch(session)
    assert session.progress().best_value == {"best": 0.9, "last": 0.5}.get(of, pytest.approx(0.7))
    session.reported(again.attempt_id, outcome(again, *CURVE[2]))
    session.completed(again.attempt_id)
    trial = sessions.ledger.trial(first.trial_key)
    assert (trial.value, trial.best_step) == (pytest.approx(value), best_step)
    kept = best_checkpoint(trial, sessions.ledger.trial_checkpoints(trial.key))
    assert kept is not None
    assert session._attempts._study.trials()[0].value == trial.value
    assert session.progress().best_value == trial.value


@pytest.mark.parametrize("of", ["last", "mean of last 3"])
def test_a_diverged_trial_has_no_last_value(sessions: Sessions, of: str) -> None:
    session = sessions.open(sessions.sweep(1, objective=f"maximize: val/accuracy, of: {of}"))
    assignment = launch(session)
    session.reported(assignment.attempt_id, outcome(assignment, 10, 0.9))
    session.reported(assignment.attempt_id, outcome(assignment, 20, math.nan))
    session.completed(assignment.attempt_id)
    trial = sessions.ledger.trial(assignment.trial_key)
    assert (trial.state, trial.value) == ("DIVERGED", None)
    assert session.progress().best_key is None
    assert session._attempts._study.trials()[0].state.name == "FAIL"


def test_the_trial_of_a_lost_worker_resumes_its_checkpoint_after_a_wait(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(1))
    assignment = launch(session)
    session.reported(assignment.attempt_id, outcome(assignment, 10, 0.5))
    session.failed(assignment.attempt_id, "worker lost", "the process died")
    assert session.next_assignment() is None
    sessions.clock.now += 2.0
    again = launch(session)
    assert again.trial_key == assignment.trial_key
    assert again.attempt_id != assignment.attempt_id
    assert step_resumed(again) == 10


def test_a_dead_worker_leaves_no_half_written_checkpoint(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(1))
    assignment = launch(session)
    session.reported(assignment.attempt_id, outcome(assignment, 10, 0.5))
    folder = Path(assignment.checkpoints)
    (folder / ".step-000000020-0123").mkdir()
    (folder / checkpoint_stem(20, 1)).mkdir()
    session.failed(assignment.attempt_id, "worker lost")
    assert [step_of(path) for path in folder.iterdir()] == [10]


def test_no_new_trial_takes_the_slot_of_a_queued_retry(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(9), capacity=2)
    first, _ = launch(session), launch(session)
    session.failed(first.attempt_id, "worker lost")
    assert session.next_assignment() is None
    sessions.clock.now += 2.0
    assert launch(session).trial_key == first.trial_key


def test_a_trial_of_a_lost_engine_is_not_charged_and_next_trains_alone(sessions: Sessions) -> None:
    """This holds however often an engine with several trials is lost; a crash while alone is charged."""
    session = sessions.open(sessions.sweep(1))
    assignment = launch(session)
    assert not assignment.alone
    for _ in range(6):
        session.failed(assignment.attempt_id, "engine lost", "the actor died")
        assignment = launch(session)
        assert assignment.alone
    session.failed(assignment.attempt_id, "interrupted")
    assignment = launch(session)
    assert not assignment.alone
    for wait in (2.0, 4.0, 8.0):
        session.failed(assignment.attempt_id, "engine crash", "the actor died")
        assert session.next_assignment() is None
        sessions.clock.now += wait
        assignment = launch(session)
    session.failed(assignment.attempt_id, "engine crash", "the actor died")
    assert session.finished


def test_no_new_trial_takes_the_slot_of_a_lost_node(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(9), capacity=2)
    first, second = launch(session), launch(session)
    session.failed(first.attempt_id, "node lost")
    sessions.resources.attempts = 3  # another node has joined, and Ray still reports the lost one
    assert launch(session).trial_key == first.trial_key
    assert session.next_assignment() is None
    sessions.clock.now += DEAD_NODE_SECONDS
    assert launch(session).trial_key not in (first.trial_key, second.trial_key)


def test_retries_are_bounded_across_drivers(sessions: Sessions) -> None:
    sweep = sessions.sweep(1)
    for _ in range(2):
        session = sessions.open(sweep)
        sessions.clock.now += 100.0
        assignment = launch(session)
        session.reported(assignment.attempt_id, failure(assignment, 0, "error"))
        session.completed(assignment.attempt_id)
    trial = sessions.ledger.trial(assignment.trial_key)
    assert (trial.state, trial.attempts, trial.cause) == ("FAILED", 2, "error: it broke")


def test_a_trial_that_progresses_between_its_failures_goes_on(sessions: Sessions) -> None:
    """An error is retried once; of three errors here, only the third follows no new report."""
    session = sessions.open(sessions.sweep(1))
    states = []
    for step in (10, 20, 20):
        sessions.clock.now += 100.0
        assignment = launch(session)
        session.reported(assignment.attempt_id, outcome(assignment, step, 0.5))
        session.failed(assignment.attempt_id, "error")
        states.append(sessions.ledger.trial(assignment.trial_key).state)
    assert states == ["WAITING", "WAITING", "FAILED"]


def test_an_interrupted_trial_is_resumed_by_the_next_driver(sessions: Sessions) -> None:
    sweep = sessions.sweep(1)
    session = sessions.open(sweep)
    assignment = launch(session)
    session.stop("stopped by SIGTERM", "INTERRUPTED")
    last = outcome(assignment, 7, 0.0, done=True, metrics={}, interrupted=True)
    session.reported(assignment.attempt_id, last)
    session.completed(assignment.attempt_id)
    assert session.finished
    assert sessions.ledger.trial(assignment.trial_key).state == "PREEMPTED"
    again = launch(sessions.open(sweep))
    assert step_resumed(again) == 7


@pytest.mark.parametrize("how", ["stopped", "shed"])
def test_an_attempt_that_ends_before_it_has_saved_anything_is_not_charged(
    sessions: Sessions, how: str
) -> None:
    """Its trial goes on from what an earlier attempt has saved."""
    sweep = sessions.sweep(1)
    sessions.share = FixedShare(1)
    session = sessions.open(sweep)
    assignment = launch(session)
    session.reported(assignment.attempt_id, outcome(assignment, 10, 0.5))
    session.failed(assignment.attempt_id, "interrupted")
    assignment = launch(session)
    if how == "stopped":
        session.stop("stopped by SIGTERM", "INTERRUPTED")
    else:
        sessions.share.overdue = {assignment.attempt_id: sessions.clock.now}
    nothing = Outcome(assignment.attempt_id, 0, done=True, metrics={}, interrupted=True)
    session.reported(assignment.attempt_id, nothing)
    session.completed(assignment.attempt_id)
    trial, last = sessions.ledger.trial(assignment.trial_key), sessions.ledger.attempts(sweep.id)[-1]
    cause = "interrupted" if how == "stopped" else "shared"
    assert (trial.state, trial.step, last.state, last.cause) == ("PREEMPTED", 10, "LOST", cause)
    again = launch(sessions.open(sweep))
    assert step_resumed(again) == 10


def test_a_killed_driver_loses_nothing_that_was_committed(sessions: Sessions) -> None:
    sweep = sessions.sweep(3)
    session = sessions.open(sweep)
    first, second = launch(session), launch(session)
    train(session, first, value=0.8)
    session.reported(second.attempt_id, outcome(second, 20, 0.4))
    after = sessions.open(sweep)
    again = launch(after)
    assert again.trial_key == second.trial_key
    assert step_resumed(again) == 20
    assert number(launch(after)) == 2
    assert after.progress().best_value == 0.8


@pytest.mark.parametrize("died", ["driver", "worker"])
def test_a_trial_that_has_reported_its_last_step_is_complete(sessions: Sessions, died: str) -> None:
    """The process died between the last report and the commit of the trial's end."""
    sweep = sessions.sweep(2)
    session = sessions.open(sweep, capacity=1)
    assignment = launch(session)
    for step in (10, 20, 30):
        session.reported(assignment.attempt_id, outcome(assignment, step, 0.9 - step / 100))
    if died == "worker":
        session.failed(assignment.attempt_id, "worker lost")
        sessions.clock.now += 100
    else:
        sessions.writer(sweep).lose_attempts()
        session = sessions.open(sweep, capacity=1)
    assert number(launch(session)) == 1
    trial = sessions.ledger.trial(assignment.trial_key)
    assert (trial.state, trial.value, trial.best_step) == ("COMPLETE", 0.8, 10)


def test_a_trial_that_the_scheduler_stopped_is_not_resumed(sessions: Sessions) -> None:
    """Its driver was killed between the scheduler's decision and the commit of it."""
    sweep = sessions.sweep(3)
    session = sessions.open(sweep)
    for _ in range(2):
        assignment = launch(session)
        session.reported(assignment.attempt_id, outcome(assignment, 10, 0.5))
    sessions.writer(sweep).lose_attempts()
    after = sessions.open(sweep)
    after.settle_stopped({f"{sweep.id}-1"})
    states = [sessions.ledger.trial(f"{sweep.id}-{index}").state for index in (0, 1)]
    assert states == ["PREEMPTED", "PRUNED"]
    assert [number(launch(after)) for _ in range(2)] == [0, 2]


def test_after_a_damaged_checkpoint_the_one_before_it_is_resumed(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(1))
    assignment = launch(session)
    for step in (10, 20):
        session.reported(assignment.attempt_id, outcome(assignment, step, 0.5 + step / 1000))
    session.failed(assignment.attempt_id, "worker lost")
    sessions.clock.now += 100
    second = launch(session)
    assert step_resumed(second) == 20
    session.reported(second.attempt_id, failure(second, 0, "damaged checkpoint"))
    session.completed(second.attempt_id)
    sessions.clock.now += 100
    third = launch(session)
    assert step_resumed(third) == 10


def test_a_hung_attempt_is_noticed_once(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(1))
    assignment = session.next_assignment()
    assert assignment is not None
    sessions.clock.now += 61
    assert session.silent(60) == []  # no worker has taken it yet
    session.started(assignment.attempt_id)
    for _ in range(12):
        sessions.clock.now += 5
        assert session.silent(60) == []
    sessions.clock.now += 1
    assert session.silent(60) == [assignment.attempt_id]
    session.condemn(assignment.attempt_id, "hung")
    assert session.silent(60) == []
    session.failed(assignment.attempt_id, "worker lost")
    assert sessions.ledger.trial_attempts(assignment.trial_key)[0].cause == "hung"


def test_an_attempt_is_not_condemned_for_time_in_which_the_driver_did_not_listen(sessions: Sessions) -> None:
    """The database did not answer for ten minutes, or the driver was suspended."""
    session = sessions.open(sessions.sweep(2))
    attempts = [launch(session).attempt_id for _ in range(2)]
    sessions.clock.now += 5
    assert session.silent(60) == []
    sessions.clock.now += 600
    assert session.silent(60) == []
    for _ in range(6):
        sessions.clock.now += 10
        assert session.silent(60) in ([], attempts)
    assert session.silent(60) == attempts


def test_the_only_trial_is_confirmed_although_its_driver_died_after_its_last_report(
    sessions: Sessions,
) -> None:
    sweep = sessions.sweep(1, "confirm: {seeds: 1}\n")
    before = sessions.open(sweep)
    assignment = launch(before)
    for step in (10, 20, 30):
        before.reported(assignment.attempt_id, outcome(assignment, step, 0.5))
    after = sessions.open(sweep)
    confirmation = after.next_assignment()
    assert confirmation is not None
    assert confirmation.trial_key.endswith("-c0")
    assert after.progress().best_value == 0.5


def test_an_attempt_that_does_not_answer_a_stop_request_is_killed_and_not_charged(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(2))
    silent, other = launch(session), launch(session)
    sessions.clock.now += 5
    assert session.silent(600) == []
    session.stop("enough", "INTERRUPTED")
    for _ in range(12):
        sessions.clock.now += 5
        assert session.silent(600) == []
    session.completed(other.attempt_id)
    sessions.clock.now += 1
    assert session.silent(600) == [silent.attempt_id]
    session.condemn(silent.attempt_id, "hung")
    session.failed(silent.attempt_id, "worker lost")
    assert session.finished
    (attempt,) = sessions.ledger.trial_attempts(silent.trial_key)
    assert (attempt.state, attempt.cause) == ("LOST", "interrupted")


def test_the_demand_is_the_number_of_unfinished_trials(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(5), capacity=2)
    assert session.demand == 5
    train(session, launch(session))
    assert session.demand == 4
    session.stop("enough", "INTERRUPTED")
    assert session.demand == 0


def test_a_sign_of_life_is_not_a_report(sessions: Sessions) -> None:
    """A trial that is queued for a slot is not silent, and has reported nothing."""
    session = sessions.open(sessions.sweep(1))
    assignment = launch(session)
    sessions.clock.now += 500
    session.reported(assignment.attempt_id, sign(assignment, queued=True))
    sessions.clock.now += 500
    assert session.silent(600.0) == []
    assert sessions.ledger.trial_reports(assignment.trial_key) == []
    train(session, assignment)
    assert sessions.ledger.trial(assignment.trial_key).state == "COMPLETE"


def test_a_trial_that_trains_on_is_never_silent(sessions: Sessions) -> None:
    """Its interval takes hours; once no sign comes any more, it is silent after the deadline."""
    session = sessions.open(sessions.sweep(1))
    assignment = launch(session)
    for _ in range(20):
        sessions.clock.now += 590
        session.reported(assignment.attempt_id, sign(assignment, training=True))
        assert session.silent(600.0) == []
    assert sessions.ledger.trial_reports(assignment.trial_key) == []
    sessions.clock.now += 10
    assert session.silent(600.0) == []
    for _ in range(60):
        sessions.clock.now += 10
        silent = session.silent(600.0)
    assert silent == [assignment.attempt_id]


def test_a_trial_that_only_trains_on_has_not_obeyed_a_stop(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(1))
    assignment = launch(session)
    session.stop("enough", "INTERRUPTED")
    for _ in range(13):
        sessions.clock.now += 5
        session.reported(assignment.attempt_id, sign(assignment, training=True))
        silent = session.silent(600.0)
    assert silent == [assignment.attempt_id]


# ------------------------------------------------------------------ shared resources


def test_no_more_attempts_are_launched_than_the_share_allows(sessions: Sessions) -> None:
    sessions.share = FixedShare(1)
    session = sessions.open(sessions.sweep(5), capacity=4)
    first = launch(session)
    assert session.next_assignment() is None
    assert [trial.number for trial in sessions.ledger.trials(session.sweep.id)] == [0], "nothing was proposed"
    train(session, first)
    assert session.next_assignment() is not None


def test_a_sweep_without_a_share_waits_with_the_reason_and_does_not_give_up(sessions: Sessions) -> None:
    sessions.share = FixedShare(0, waiting="the pool has no share for it yet")
    session = sessions.open(sessions.sweep(2))
    assert session.next_assignment() is None
    for _ in range(20):
        sessions.clock.now += NODE_WAIT
        session.check_limits()
    assert session.stopped is None
    record = sessions.ledger.sweep(session.sweep.id)
    assert record is not None
    assert (record.state, record.reason) == ("WAITING", "the pool has no share for it yet")
    assert (session.progress().state, session.progress().reason) == (record.state, record.reason)
    sessions.share.attempts, sessions.share.waiting = 1, None
    assert session.next_assignment() is not None
    session.check_limits()
    assert sessions.ledger.sweep(session.sweep.id).state == "RUNNING"  # type: ignore[union-attr]


def test_the_time_in_the_queue_is_no_time_without_a_node(sessions: Sessions) -> None:
    """The wait for a node begins when the share does."""
    sessions.share = FixedShare(0, waiting="its share is still held")
    session = sessions.open(sessions.sweep(2), capacity=0)
    session.check_limits()
    sessions.clock.now += 10 * NODE_WAIT
    session.check_limits()
    sessions.share.waiting = None
    session.check_limits()
    assert session.stopped is None
    sessions.clock.now += NODE_WAIT + 1
    session.check_limits()
    assert session.stopped is not None


def test_a_trial_that_is_shed_is_not_charged_and_is_the_next_to_be_launched(sessions: Sessions) -> None:
    sessions.share = FixedShare(2)
    session = sessions.open(sessions.sweep(5), capacity=2)
    first, _ = launch(session), launch(session)
    session.reported(first.attempt_id, outcome(first, 10, 0.5))
    assert not session.sheds(first.attempt_id)
    sessions.share.leaving, sessions.share.attempts = frozenset({first.attempt_id}), 1
    session.reported(first.attempt_id, outcome(first, 20, 0.5))
    assert session.sheds(first.attempt_id)
    session.completed(first.attempt_id)
    [attempt] = sessions.ledger.trial_attempts(first.trial_key)
    assert (attempt.state, attempt.cause) == ("LOST", "shared")
    assert sessions.ledger.trial(first.trial_key).state == "PREEMPTED"
    assert session.next_assignment() is None, "another sweep has the place"
    sessions.share.attempts = 2
    again = launch(session)
    assert again.trial_key == first.trial_key
    assert step_resumed(again) == 20
    assert wait_before_retry("error", sessions.ledger.trial_attempts(first.trial_key)) == 2.0, (
        "no failure counts"
    )


def test_a_trial_that_finishes_while_it_is_to_be_shed_is_complete(sessions: Sessions) -> None:
    sessions.share = FixedShare(2)
    session = sessions.open(sessions.sweep(2))
    first = launch(session)
    sessions.share.leaving = frozenset({first.attempt_id})
    train(session, first)
    assert sessions.ledger.trial(first.trial_key).state == "COMPLETE"


def test_confirmations_are_not_wanted_while_the_search_may_change_what_they_confirm(
    sessions: Sessions,
) -> None:
    """A sweep that claimed places for them would keep them from other sweeps."""
    session = sessions.open(sessions.sweep(2, "confirm: {seeds: 3}\n"), capacity=4)
    assert session.startable == 2
    first, second = launch(session), launch(session)
    assert session.startable == 2
    train(session, first)
    assert session.startable == 1
    train(session, second)
    assert session.startable == 3


def test_nothing_more_is_wanted_during_an_outage_or_after_a_stop(sessions: Sessions) -> None:
    sessions.probes = {"disk full": lambda: False}
    session = sessions.open(sessions.sweep(5), capacity=2)
    running = launch(session)
    session.failed(launch(session).attempt_id, "disk full")
    assert session.startable == 1
    session.stop("enough", "INTERRUPTED")
    assert session.startable == 1
    train(session, running)
    assert session.startable == 0


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_trial_that_is_cut_is_not_charged(sessions: Sessions, is_killed: bool) -> None:
    """It saves and ends between two reports, or is killed if it has not done so in time."""
    sessions.share = FixedShare(2)
    session = sessions.open(sessions.sweep(5), capacity=2)
    first = launch(session)
    session.started(first.attempt_id)
    sessions.clock.now += 300.0
    sessions.share.leaving = {first.attempt_id}
    sessions.share.overdue = {first.attempt_id: sessions.clock.now}
    for _ in range(int(LEAVE_SECONDS)):
        assert session.silent(10_000.0) == [], "it has that long to answer"
        sessions.clock.now += 1.0
    if is_killed:
        assert session.silent(10_000.0) == []
        sessions.clock.now += 1.0
        assert session.silent(10_000.0) == [first.attempt_id]
        session.condemn(first.attempt_id, "hung")
        session.failed(first.attempt_id, "worker lost")
    else:
        session.reported(first.attempt_id, replace(outcome(first, 5, 0.5), metrics={}, interrupted=True))
        session.completed(first.attempt_id)
    [attempt] = sessions.ledger.trial_attempts(first.trial_key)
    assert (attempt.state, attempt.cause) == ("LOST", "shared")
    assert sessions.ledger.trial(first.trial_key).state == "PREEMPTED"
    again = launch(session)
    assert again.trial_key == first.trial_key
    assert (again.resume.step if again.resume else 0) == (0 if is_killed else 5)


def test_the_similarity_of_an_earlier_sweep_is_recorded_while_the_sweep_runs(sessions: Sessions) -> None:
    """It used to be recorded when the session had ended, so that reports before did not know it."""
    earlier = searched_with_rising_values(sessions)
    text = SPACE.replace("BUDGET", "32").replace("random: {seed: 3}", "tpe: {seed: 3}")
    session = sessions.open(sessions.of(f"{text}warm_start: [{earlier}]\n"))

    def recorded() -> dict[str, Any]:
        record = sessions.ledger.sweep(session.sweep.id)
        assert record is not None
        return dict(record.facts["similarity"][earlier])

    session.check_limits()
    assert recorded() == {"results": 6, "shared": 0, "correlation": None, "weight": 0.0}
    for count in range(1, 5):
        train(session, launch(session), value=1 - count / 10)
        session.check_limits()
        assert recorded()["shared"] == count
    assert recorded()["correlation"] == pytest.approx(1.0), "the best earlier setting is repeated first"


def searched_with_rising_values(sessions: Sessions) -> str:
    """Return the id of a sweep of six complete trials, each of which is better than the one before."""
    session = sessions.open(sessions.sweep(6))
    for count in range(6):
        train(session, launch(session), value=count / 10)
    return session.sweep.id
