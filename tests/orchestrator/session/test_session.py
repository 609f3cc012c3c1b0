"""The session's decisions, on a real ledger and a real study; outcomes are handed in as a worker would."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from orchestrator.assignment import Outcome
from orchestrator.session.attempts import NAMED_AFTER_DEATH
from orchestrator.storage.paths import checkpoint_name
from tests.orchestrator.session.desk import Desk, failure, launch, outcome, train


def test_launches_what_fits_and_no_more(desk: Desk) -> None:
    session = desk.open(desk.sweep(5), capacity=2)
    first, second = launch(session), launch(session)
    assert session.next_assignment() is None
    train(session, first)
    third = launch(session)
    assert [told.number for told in (first, second, third)] == [0, 1, 2]


def test_a_trial_is_in_the_ledger_before_it_is_launched(desk: Desk) -> None:
    sweep = desk.sweep(1)
    told = launch(desk.open(sweep))
    trial = desk.ledger.trial(told.trial_key)
    assert trial.state == "RUNNING"
    assert sweep.settings(trial.params, trial.seed) == told.settings


def test_complete_trials_keep_their_best_value_and_step(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    for step, value in ((10, 0.5), (20, 0.7), (30, 0.6)):
        session.reported(told.attempt_id, outcome(told, step, value))
    session.completed(told.attempt_id)
    trial = desk.ledger.trial(told.trial_key)
    assert (trial.state, trial.value, trial.best_step) == ("COMPLETE", 0.7, 20)
    assert session.finished


def test_stopped_by_the_rule_is_pruned(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    train(session, told, until=20)
    assert desk.ledger.trial(told.trial_key).state == "PRUNED"


def test_checkpoints_superseded_are_deleted_and_the_best_is_kept(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    for step, value in ((10, 0.9), (20, 0.5), (30, 0.6)):
        session.reported(told.attempt_id, outcome(told, step, value))
    kept = {Path(row.path).name: row.kind for row in desk.ledger.checkpoints(told.trial_key)}
    there = {folder.name for folder in Path(told.checkpoints).iterdir()}
    assert checkpoint_name(10) in there
    assert checkpoint_name(30) in there
    assert there == set(kept)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_fails_the_trial(desk: Desk, value: float) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    session.reported(told.attempt_id, outcome(told, 10, value))
    session.completed(told.attempt_id)
    trial = desk.ledger.trial(told.trial_key)
    assert trial.state == "FAILED"
    assert "non-finite" in str(trial.cause)
    assert session.finished


def test_a_lost_worker_goes_on_from_its_checkpoint_after_a_wait(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    session.reported(told.attempt_id, outcome(told, 10, 0.5))
    session.failed(told.attempt_id, "worker lost", "the process died")
    assert session.next_assignment() is None
    desk.clock.now += 2.0
    again = launch(session)
    assert again.trial_key == told.trial_key
    assert again.attempt_id != told.attempt_id
    assert again.resume == str(Path(told.checkpoints) / checkpoint_name(10))


def test_a_dead_worker_leaves_no_half_written_checkpoint(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    session.reported(told.attempt_id, outcome(told, 10, 0.5))
    folder = Path(told.checkpoints)
    (folder / ".step-000000020-0123").mkdir()
    (folder / checkpoint_name(20)).mkdir()
    session.failed(told.attempt_id, "worker lost")
    assert [path.name for path in folder.iterdir()] == [checkpoint_name(10)]


def test_a_trial_that_waits_for_its_retry_keeps_its_place(desk: Desk) -> None:
    session = desk.open(desk.sweep(9), capacity=2)
    first, _ = launch(session), launch(session)
    session.failed(first.attempt_id, "worker lost")
    assert session.next_assignment() is None
    desk.clock.now += 2.0
    assert launch(session).trial_key == first.trial_key


def test_no_new_trial_takes_the_place_of_one_whose_node_is_lost(desk: Desk) -> None:
    session = desk.open(desk.sweep(9), capacity=2)
    first, second = launch(session), launch(session)
    session.failed(first.attempt_id, "node lost")
    session.capacity = lambda: 3  # another node has come, and the lost one is still named
    assert launch(session).trial_key == first.trial_key
    assert session.next_assignment() is None
    desk.clock.now += NAMED_AFTER_DEATH
    assert launch(session).trial_key not in (first.trial_key, second.trial_key)


def test_retries_are_bounded_across_drivers(desk: Desk) -> None:
    sweep = desk.sweep(1)
    for _ in range(2):
        session = desk.open(sweep)
        desk.clock.now += 100.0
        told = launch(session)
        session.reported(told.attempt_id, failure(0, "error"))
        session.completed(told.attempt_id)
    trial = desk.ledger.trial(told.trial_key)
    assert (trial.state, trial.attempts, trial.cause) == ("FAILED", 2, "error: it broke")


def test_an_interrupted_trial_is_resumed_by_the_next_driver(desk: Desk) -> None:
    sweep = desk.sweep(1)
    session = desk.open(sweep)
    told = launch(session)
    session.stop("stopped by SIGTERM", "INTERRUPTED")
    left = outcome(told, 7, 0.0, done=True, metrics={}, interrupted=True)
    session.reported(told.attempt_id, left)
    session.completed(told.attempt_id)
    assert session.finished
    assert desk.ledger.trial(told.trial_key).state == "PREEMPTED"
    again = launch(desk.open(sweep))
    assert again.resume == str(Path(told.checkpoints) / checkpoint_name(7))


def test_a_killed_driver_loses_nothing_that_was_committed(desk: Desk) -> None:
    sweep = desk.sweep(3)
    session = desk.open(sweep)
    first, second = launch(session), launch(session)
    train(session, first, value=0.8)
    session.reported(second.attempt_id, outcome(second, 20, 0.4))
    after = desk.open(sweep)
    again = launch(after)
    assert (again.trial_key, again.number) == (second.trial_key, second.number)
    assert again.resume == str(Path(second.checkpoints) / checkpoint_name(20))
    assert launch(after).number == 2
    assert after.progress().best_value == 0.8


@pytest.mark.parametrize("died", ["driver", "worker"])
def test_a_trial_whose_last_report_is_in_has_nothing_left_to_train(desk: Desk, died: str) -> None:
    """It was killed between its last report and the commit of its end."""
    sweep = desk.sweep(2)
    session = desk.open(sweep, capacity=1)
    told = launch(session)
    for step in (10, 20, 30):
        session.reported(told.attempt_id, outcome(told, step, 0.9 - step / 100))
    if died == "worker":
        session.failed(told.attempt_id, "worker lost")
        desk.clock.now += 100
    else:
        desk.ledger.lose_attempts(sweep.id)
        session = desk.open(sweep, capacity=1)
    assert launch(session).number == 1
    trial = desk.ledger.trial(told.trial_key)
    assert (trial.state, trial.value, trial.best_step) == ("COMPLETE", 0.8, 10)


def test_a_trial_that_was_stopped_is_not_trained_on(desk: Desk) -> None:
    """Its driver was killed between the scheduler's decision and the commit of it."""
    sweep = desk.sweep(3)
    session = desk.open(sweep)
    for _ in range(2):
        told = launch(session)
        session.reported(told.attempt_id, outcome(told, 10, 0.5))
    desk.ledger.lose_attempts(sweep.id)
    after = desk.open(sweep)
    after.settle_stopped({f"{sweep.id}-1"})
    assert [desk.ledger.trial(f"{sweep.id}-{number}").state for number in (0, 1)] == ["PREEMPTED", "PRUNED"]
    assert [launch(after).number for _ in range(2)] == [0, 2]


def test_a_damaged_checkpoint_gives_way_to_the_one_behind_it(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    for step in (10, 20):
        session.reported(told.attempt_id, outcome(told, step, 0.5 + step / 1000))
    session.failed(told.attempt_id, "worker lost")
    desk.clock.now += 100
    second = launch(session)
    assert second.resume == str(Path(told.checkpoints) / checkpoint_name(20))
    session.reported(second.attempt_id, failure(0, "damaged checkpoint"))
    session.completed(second.attempt_id)
    desk.clock.now += 100
    third = launch(session)
    assert third.resume == str(Path(told.checkpoints) / checkpoint_name(10))


def test_a_hung_attempt_is_noticed_once(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = session.next_assignment()
    assert told is not None
    desk.clock.now += 61
    assert session.silent(60) == []  # no worker has taken it yet
    session.started(told.attempt_id)
    desk.clock.now += 61
    assert session.silent(60) == [told.attempt_id]
    session.condemn(told.attempt_id, "hung")
    assert session.silent(60) == []
    session.failed(told.attempt_id, "worker lost")
    assert desk.ledger.attempts(told.trial_key)[0].cause == "hung"


def test_as_many_attempts_are_wanted_as_are_left(desk: Desk) -> None:
    session = desk.open(desk.sweep(5), capacity=2)
    assert session.demand == 5
    train(session, launch(session))
    assert session.demand == 4
    session.stop("enough", "INTERRUPTED")
    assert session.demand == 0


def test_a_sign_of_life_is_no_report(desk: Desk) -> None:
    """A trial that waits for a slot is not silent, and has nothing to settle."""
    session = desk.open(desk.sweep(1))
    told = launch(session)
    desk.clock.now += 500
    session.reported(told.attempt_id, Outcome(0, done=False, metrics={}, waiting=True))
    desk.clock.now += 500
    assert session.silent(600.0) == []
    assert desk.ledger.reports(told.trial_key) == []
    train(session, told)
    assert desk.ledger.trial(told.trial_key).state == "COMPLETE"
