"""The trial board: states, the best trial so far, retries that are due."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger.sweeps.records import TrialRecord, TrialState
from orchestrator.ledger.sweeps.selection import best_trial
from orchestrator.session.board import RetryQueue, TrialBoard
from tests import sweeps


def trials(*values: tuple[TrialState, float | None]) -> list[TrialRecord]:
    return [sweeps.trial(number, state, value=value) for number, (state, value) in enumerate(values)]


def board(records: list[TrialRecord], *, maximize: bool = True) -> TrialBoard:
    return TrialBoard(records, maximize=maximize)


def test_unfinished_trials_of_an_earlier_driver_are_due() -> None:
    records = trials(("COMPLETE", 0.5), ("RUNNING", None), ("PREEMPTED", None), ("FAILED", None))
    resumed = board(records)
    assert resumed.counts == {"COMPLETE": 1, "WAITING": 2, "FAILED": 1}
    assert resumed.retries.in_order() == [records[1].key, records[2].key]
    assert (resumed.settled, resumed.unfinished) == (2, 2)


def test_the_best_trial_is_a_complete_one_of_the_search() -> None:
    good, better, pruned, confirmation = trials(
        ("COMPLETE", 0.5), ("COMPLETE", 0.7), ("PRUNED", 0.8), ("COMPLETE", 0.9)
    )
    records = [good, better, pruned, replace(confirmation, role="confirmation")]
    assert board(records).best == (better.key, 0.7)


@pytest.mark.parametrize(("maximize", "best"), [(True, 0.7), (False, 0.5)])
def test_the_objective_decides_which_value_is_better(maximize: bool, best: float) -> None:
    records = trials(("COMPLETE", 0.7), ("COMPLETE", 0.5), ("COMPLETE", 0.6))
    assert board(records, maximize=maximize).progress(3, "RUNNING", None, None).best_value == best


def test_a_feasible_trial_is_better_than_any_other() -> None:
    first, second, third = trials(("COMPLETE", 0.9), ("COMPLETE", 0.5), ("RUNNING", None))
    live = TrialBoard([first, second, third], maximize=True, violations={first.key: 0.1})
    assert live.best == (second.key, 0.5)
    live.score(third, 0.95, violation=0.01)
    assert live.best == (second.key, 0.5)
    live.score(third, 0.7)
    assert live.best == (third.key, 0.7)


@pytest.mark.parametrize("maximize", [True, False])
def test_the_lower_number_wins_a_tie_whichever_trial_reported_first(maximize: bool) -> None:
    first, second = trials(("COMPLETE", None), ("COMPLETE", None))
    live = board([first, second], maximize=maximize)
    live.score(second, 0.7)
    live.score(first, 0.7)
    assert live.best == (first.key, 0.7)


def test_a_trial_that_fails_or_is_pruned_is_no_longer_the_best() -> None:
    """At the end the board and the ledger name the same trial."""
    records = trials(("RUNNING", None), ("RUNNING", None), ("RUNNING", None))
    live = board(records)
    for trial, value in zip(records, (0.5, 0.8, 0.9), strict=True):
        live.score(trial, value)
    assert live.best == (records[2].key, 0.9)
    ended: list[TrialState] = ["COMPLETE", "PRUNED", "FAILED"]
    for trial, state in zip(records, ended, strict=True):
        live.enter(trial.key, state)
    in_ledger = [
        replace(trial, state=state, value=None if state == "FAILED" else value)
        for trial, state, value in zip(records, ended, (0.5, 0.8, 0.9), strict=True)
    ]
    best = best_trial(in_ledger, maximize=True)
    assert best is not None
    assert live.best == (best.key, best.value) == (records[0].key, 0.5)


def test_the_states_are_counted_as_they_change() -> None:
    records = trials(("RUNNING", None), ("COMPLETE", 0.5), ("FAILED", None))
    live = board(records)
    live.retry(records[0].key, "PREEMPTED", 0.0)
    live.enter(records[0].key, "RUNNING")
    live.enter("s-9", "WAITING")
    states = live.progress(4, "RUNNING", None, None).states
    assert states == {"RUNNING": 1, "COMPLETE": 1, "FAILED": 1, "WAITING": 1}
    assert (live.settled, live.unfinished) == (2, 2)


def test_retries_of_an_earlier_driver_are_due_first_and_the_others_at_their_time() -> None:
    retries = RetryQueue(["s-1", "s-0"])
    retries.add("s-3", due=20.0)
    retries.add("s-2", due=10.0)
    assert retries.in_order() == ["s-0", "s-1", "s-2", "s-3"]
    assert [retries.pop(now=9.0) for _ in range(3)] == ["s-0", "s-1", None]
    assert retries.pop(now=10.0) == "s-2"
    assert len(retries) == 1


def test_a_retry_that_is_removed_before_it_is_due_is_not_popped() -> None:
    retries = RetryQueue(["s-0", "s-1", "s-2"])
    retries.remove("s-1")
    assert [retries.pop(now=0.0) for _ in range(3)] == ["s-0", "s-2", None]


def test_a_pruned_trial_is_never_the_best_one() -> None:
    """Nothing would be left to choose, and to confirm, at the end of a search whose trials are all pruned."""
    records = [sweeps.trial(number, "RUNNING") for number in range(2)]
    live = board([])
    for record in records:
        live.enter(record.key, "RUNNING")
    live.score(records[0], 0.9)
    live.enter(records[0].key, "PRUNED")
    assert live.best is None
    live.score(records[1], 0.5)
    assert live.best == (records[1].key, 0.5)


def test_the_best_so_far_may_be_a_pruned_trial_and_no_failed_one() -> None:
    """It may be pruned before this driver or by it."""
    before, by_this, failed, complete = trials(
        ("PRUNED", 0.8), ("RUNNING", None), ("RUNNING", None), ("COMPLETE", 0.5)
    )
    live = board([before, by_this, failed, complete])
    assert live.best_so_far == (before.key, 0.8)
    for trial, state, value in ((by_this, "PRUNED", 0.9), (failed, "FAILED", 0.95)):
        live.score(trial, value)
        live.enter(trial.key, state)  # type: ignore[arg-type]
    assert live.best_so_far == (by_this.key, 0.9)
    assert live.best == (complete.key, 0.5)
    shown = live.progress(4, "RUNNING", None, None)
    assert (shown.best_key, shown.best_state) == (by_this.key, "PRUNED")
