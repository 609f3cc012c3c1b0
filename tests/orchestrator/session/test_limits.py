"""The limits that end a sweep or a trial: budget, failures, retries, missing nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.assignment import Outcome
from orchestrator.config.sections import BudgetSection, NoImprovementSection
from orchestrator.ledger.queue import queue_settings
from orchestrator.ledger.sweeps.records import RESOURCES, AttemptRecord, SweepRecord, TrialState
from orchestrator.ledger.sweeps.standing import HoursSpent, spent
from orchestrator.session.attempts import Running, any_active
from orchestrator.session.limits import (
    ALLOWED_RETRIES,
    BACKOFF_CAP_SECONDS,
    FOREIGN,
    HOPELESS_AFTER,
    SLOW_PLACEMENT,
    SLOW_START,
    UNCHARGED,
    SearchEnd,
    Spending,
    Stop,
    hopeless,
    overspent,
    wait_before_retry,
)
from orchestrator.session.session import Session
from tests import sweeps
from tests.orchestrator.session.sessions import (
    BUSY_WAIT,
    NODE_WAIT,
    Sessions,
    failure,
    launch,
    outcome,
    train,
)

# ------------------------------------------------------------------ failures and requests


def test_one_trial_that_did_not_fail_is_enough_to_continue() -> None:
    budget = BudgetSection(trials=100)
    failed = f"the first {HOPELESS_AFTER} trials all failed"
    assert hopeless(budget, {"FAILED": HOPELESS_AFTER, "RUNNING": 1, "WAITING": 1}) == failed
    for ended in ("COMPLETE", "PRUNED", "DIVERGED"):
        assert hopeless(budget, {"FAILED": HOPELESS_AFTER, ended: 1}) is None
    assert hopeless(budget, {"FAILED": HOPELESS_AFTER - 1}) is None


def test_the_budget_says_how_many_failed_trials_are_enough() -> None:
    budget = BudgetSection(trials=100, failures=3)
    assert hopeless(budget, {"FAILED": 3}) == "the first 3 trials all failed"
    assert hopeless(budget, {"FAILED": 2}) is None
    assert hopeless(BudgetSection(trials=100, failures=20), {"FAILED": 19}) is None


def ending(*values: float | None, state: TrialState = "COMPLETE", **budget: Any) -> str | None:
    """Return why a search that maximises ends after trials with these values; None is a pruned trial."""
    end = SearchEnd(BudgetSection(trials=100, **budget), maximize=True)
    for value in values:
        end.add("PRUNED" if value is None else state, value, 0.0)
    return end.reason


PATIENT = {"trials": 3, "by": 0.01}


@pytest.mark.parametrize(
    ("values", "budget", "reason"),
    [
        ((0.5, 0.94), {"target": 0.95}, None),
        ((0.5, 0.95, 0.99), {"target": 0.95}, "a trial has reached the target 0.95 with 0.95"),
        ((0.5, 0.5, 0.4), {"no_improvement": PATIENT}, None),
        ((0.5, 0.5, 0.4, None), {"no_improvement": PATIENT}, "3 trials have not improved on 0.5 by 0.01"),
        (
            (0.5, 0.509, 0.509, 0.509),
            {"no_improvement": PATIENT},
            "3 trials have not improved on 0.5 by 0.01",
        ),
        ((0.5, 0.506, 0.512, 0.5, 0.5), {"no_improvement": PATIENT}, None),
        ((0.5, 0.5), {"no_improvement": {"trials": 1}}, "1 trial has not improved on 0.5"),
        ((None, None, None, None, None, 0.5), {"no_improvement": PATIENT}, None),
    ],
)
def test_a_search_ends_at_its_target_or_without_improvement(
    values: tuple[float | None, ...], budget: dict[str, Any], reason: str | None
) -> None:
    """Small gains add up against the value from which they are counted; `by` is the least gain."""
    if "no_improvement" in budget:
        budget = {"no_improvement": NoImprovementSection(**budget["no_improvement"])}
    assert ending(*values, **budget) == reason


def test_less_is_better_where_the_objective_is_minimised() -> None:
    end = SearchEnd(BudgetSection(trials=9, target=0.1), maximize=False)
    end.add("COMPLETE", 0.2, 0.0)
    assert end.reason is None
    end.add("DIVERGED", 0.05, 0.0)
    assert end.reason == "a trial has reached the target 0.1 with 0.05"


def test_neither_failed_nor_infeasible_trials_end_a_search() -> None:
    """A crash says nothing about the space. An infeasible trial is never an improvement."""
    budget = BudgetSection(trials=9, target=0.9, no_improvement=NoImprovementSection(trials=2))
    end = SearchEnd(budget, maximize=True)
    end.add("COMPLETE", 0.5, 0.0)
    for _ in range(5):
        end.add("FAILED", None, 0.0)
    end.add("COMPLETE", 0.95, 0.2)
    assert end.reason is None
    end.add("COMPLETE", 0.6, 0.0)
    end.add("DIVERGED", None, 0.0)
    assert end.reason is None
    end.add("PRUNED", 0.99, 0.0)
    assert end.reason == "2 trials have not improved on 0.6"


def test_no_trial_begins_after_the_target_and_running_ones_finish(sessions: Sessions) -> None:
    """Its confirmation follows, and the next driver decides the same."""
    text = sessions.sweep(9, "confirm: {seeds: 1}\n").source_text
    sweep = sessions.of(text.replace("{trials: 9}", "{trials: 9, target: 0.8}"))
    session = sessions.open(sweep)
    first, second = launch(session), launch(session)
    train(session, first, value=0.85)
    session.check_limits()
    assert session.end == Stop("a trial has reached the target 0.8 with 0.85", "COMPLETE")
    assert session.next_assignment() is None, "the search may still change the best trial"
    session = sessions.open(sweep)
    second = launch(session)
    train(session, second, value=0.3)
    assert session.progress().wanted == 3
    confirmation = launch(session)
    train(session, confirmation, value=0.7)
    assert session.finished
    assert session.end == Stop("a trial has reached the target 0.8 with 0.85", "COMPLETE")
    states = [(trial.role, trial.state) for trial in sessions.ledger.trials(sweep.id)]
    assert states == [("search", "COMPLETE")] * 2 + [("confirmation", "COMPLETE")]


def test_a_trial_that_was_proposed_before_the_search_ended_is_not_begun(sessions: Sessions) -> None:
    text = sessions.sweep(9).source_text
    sweep = sessions.of(text.replace("{trials: 9}", "{trials: 9, target: 0.8}"))
    session = sessions.open(sweep, capacity=1)
    first = launch(session)
    session._proposals._ask()  # its driver dies before the launch
    session = sessions.open(sweep, capacity=1)
    assert launch(session).trial_key == first.trial_key
    train(session, replace(first, attempt_id=f"{first.trial_key}.2"), value=0.9)
    session.check_limits()
    assert session.next_assignment() is None
    assert session.finished
    assert session.progress().wanted == session.progress().settled == 1
    assert [trial.state for trial in sessions.ledger.trials(sweep.id)] == ["COMPLETE", "WAITING"]


def test_a_sweep_whose_trials_all_fail_stops_early(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(100), capacity=1)
    for _ in range(HOPELESS_AFTER):
        assignment = launch(session)
        session.reported(assignment.attempt_id, failure(assignment, 0, "bad data"))
        session.completed(assignment.attempt_id)
        session.check_limits()
    assert session.stopped is not None
    assert session.stopped.state == "COMPLETE"
    assert session.next_assignment() is None


def test_trials_that_diverge_have_not_crashed(sessions: Sessions) -> None:
    """Their code works; an earlier driver may have seen them. What they have reported before stays."""
    sweep = sessions.sweep(100)
    for _ in range(2):
        session = sessions.open(sweep, capacity=1)
        for _ in range(HOPELESS_AFTER):
            assignment = launch(session)
            session.reported(assignment.attempt_id, outcome(assignment, 10, 0.5))
            session.reported(assignment.attempt_id, outcome(assignment, 20, float("nan")))
            session.completed(assignment.attempt_id)
            session.check_limits()
        assert session.stopped is None
    trial = sessions.ledger.trials(sweep.id)[0]
    assert (trial.state, trial.best_step, trial.attempts) == ("DIVERGED", 10, 1)
    assert (trial.value, trial.cause) == (0.5, "diverged at step 20: val/accuracy is nan")
    best = [row for row in sessions.ledger.trial_checkpoints(trial.key) if row.kind == "best"]
    assert [(row.step, Path(row.path).exists()) for row in best] == [(10, True)]


def failing(sessions: Sessions, *messages: str, cause: str = "error") -> Session:
    """Return a session in which one attempt after the other has failed."""
    session = sessions.open(sessions.sweep(100), capacity=1)
    for message in messages:
        assignment = launch(session)
        session.reported(assignment.attempt_id, replace(failure(assignment, 0, cause), message=message))
        session.completed(assignment.attempt_id)
        sessions.clock.now += 100.0
        session.check_limits()
        if session.stopped is not None:
            break
    return session


def test_errors_alike_before_any_report_stop_a_sweep_and_say_what_to_do(sessions: Sessions) -> None:
    """A typo fails every attempt in the same way, whatever numbers its message holds."""
    session = failing(sessions, *(f"NameError: name 'lr' (train.py, line {at})" for at in (3, 4, 5, 6)))
    assert session.stopped is not None
    assert session.stopped.state == "COMPLETE"
    assert session.stopped.reason.startswith(
        "3 attempts failed alike before any report: NameError: name 'lr' (train.py, line 5)"
    )
    assert f"run `sweep retry-failed {session.sweep.id}`" in session.stopped.reason
    assert session.next_assignment() is None
    states = [trial.state for trial in sessions.ledger.trials(session.sweep.id)]
    assert "FAILED" in states
    assert "RUNNING" not in states


@pytest.mark.parametrize(
    ("messages", "cause"),
    [
        (("KeyError: 'a'", "KeyError: 'b'", "ValueError: 'a'", "KeyError: 'c'"), "error"),
        (("has failed (got signal 9)",) * 4, "error"),
        (("has failed (got exit code 137: killed)",) * 4, "error"),
        (("The actor died",) * 4, "worker lost"),
        (("resources.memory",) * 4, "out of memory"),
    ],
)
def test_other_errors_and_deaths_of_machines_are_retried(
    sessions: Sessions, messages: tuple[str, ...], cause: str
) -> None:
    assert failing(sessions, *messages, cause=cause).stopped is None


def test_errors_alike_after_a_report_are_those_of_their_trials(sessions: Sessions) -> None:
    """Others have shown that the code can run; an earlier driver may have received their reports."""
    sweep = sessions.sweep(100)
    session = sessions.open(sweep, capacity=1)
    assignment = launch(session)
    session.reported(assignment.attempt_id, outcome(assignment, 10, 0.5))
    session.completed(assignment.attempt_id)
    session = sessions.open(sweep, capacity=1)
    for _ in range(4):
        assignment = launch(session)
        session.reported(assignment.attempt_id, failure(assignment, 0, "error"))
        session.completed(assignment.attempt_id)
        sessions.clock.now += 100.0
        session.check_limits()
    assert session.stopped is None


def test_a_stop_request_in_the_ledger_stops_the_session(sessions: Sessions) -> None:
    sweep = sessions.sweep(2)
    session = sessions.open(sweep)
    session.check_limits()
    assert session.stopped is None
    queue_settings.ask_to_stop(sessions.ledger, sweep.id)
    session.check_limits()
    assert session.stopped is not None
    assert session.stopped.state == "INTERRUPTED"


# ------------------------------------------------------------------ budget


def attempt(start: float, end: float | None) -> AttemptRecord:
    """Return an attempt that was launched at 0 h and taken by a worker at `start` hours."""
    ended_at = None if end is None else end * 3600
    return AttemptRecord("s-0.1", "s-0", 1, "ENDED", None, None, 0.0, ended_at, taken_at=start * 3600)


def of_gpus(*shares: tuple[float, float]) -> SweepRecord:
    """Return a sweep whose attempts take shares of a GPU, each of them from a time on, in hours."""
    entries = [{"cpu": 1.0, "gpu": gpu, "at": at * 3600} for at, gpu in shares]
    return sweeps.sweep_record(document={"resources": {"cpu": 1.0, "gpu": 1.0}}, facts={RESOURCES: entries})


ONE_GPU = of_gpus()


def test_overlapping_attempts_share_the_clock_but_not_the_device() -> None:
    total = spent([attempt(0, 2), attempt(1, 3)], ONE_GPU)
    assert (total.hours, total.gpu_hours) == (3.0, 4.0)


def test_gpu_hours_count_by_the_share_of_each_attempt() -> None:
    """The first driver gave each trial a GPU, the next one an eighth."""
    hours = [replace(attempt(at, at + 2), started_at=at * 3600.0) for at in (0, 2, 4)]
    shared = of_gpus((0.0, 1.0), (3.0, 0.125))
    assert spent(hours, shared) == HoursSpent(6.0, 4.25)
    later = of_gpus((3.0, 0.125))
    assert spent(hours, later) == HoursSpent(6.0, 0.75)
    spending = Spending(spent(hours, shared), 0.5)
    spending.take("s-1.1", 0.0)
    assert spending.total(3600.0) == HoursSpent(7.0, 4.75)


def test_the_time_between_two_drivers_does_not_count() -> None:
    assert spent([attempt(0, 1), attempt(10, 12)], ONE_GPU).hours == 3.0


def test_outages_of_the_database_do_not_count() -> None:
    both = [replace(attempt(0, 4), outage_seconds=2 * 3600.0), replace(attempt(1, 5), outage_seconds=7200.0)]
    assert spent(both, ONE_GPU) == HoursSpent(hours=3.0, gpu_hours=4.0)


def test_an_attempt_inside_another_adds_nothing_to_the_clock() -> None:
    assert spent([attempt(0, 4), attempt(1, 2), attempt(3, 5)], ONE_GPU).hours == 5.0


def test_an_attempt_that_no_worker_took_costs_nothing() -> None:
    waited = AttemptRecord("s-0.1", "s-0", 1, "LOST", "interrupted", None, 0.0, 3600.0)
    assert spent([waited, attempt(1, 2)], ONE_GPU) == HoursSpent(1.0, 1.0)


def test_a_running_attempt_counts_from_when_it_was_taken_until_now() -> None:
    spending = Spending(spent([attempt(0, 1)], ONE_GPU), 1.0)
    spending.end("s-1.1", 0.0)
    spending.take("s-2.1", 3600.0)
    spending.take("s-2.1", 5400.0)
    assert spending.total(2 * 3600.0) == HoursSpent(2.0, 2.0)
    spending.take("s-3.1", 2 * 3600.0)
    spending.end("s-2.1", 3 * 3600.0)
    assert spending.total(4 * 3600.0) == HoursSpent(4.0, 5.0)
    spending.end("s-3.1", 4 * 3600.0)
    assert spending.total(9 * 3600.0) == HoursSpent(4.0, 5.0)


@pytest.mark.parametrize(
    ("limits", "gpu", "over"),
    [
        ({}, 1.0, None),
        ({"hours": 3.5}, 1.0, None),
        ({"hours": 3.0}, 1.0, "the budget of 3 hours is spent"),
        ({"gpu_hours": 4.0}, 2.0, None),
        ({"gpu_hours": 4.0}, 4.0, "the budget of 4 GPU hours is spent"),
    ],
)
def test_a_budget_is_spent_in_hours_or_in_gpu_hours(
    limits: dict[str, float], gpu: float, over: str | None
) -> None:
    assert overspent(BudgetSection(trials=1, **limits), HoursSpent(hours=3.0, gpu_hours=gpu)) == over


def test_waiting_for_a_worker_costs_nothing(sessions: Sessions) -> None:
    """Eight attempts that wait for a cluster for ten hours use nothing of a budget of one hour."""
    sweep = sessions.sweep(8)
    sweep = replace(sweep, budget=sweep.budget.model_copy(update={"hours": 1.0}))
    session = sessions.open(sweep, capacity=8)
    waiting = [session.next_assignment() for _ in range(8)]
    sessions.clock.now += 36_000
    session.check_limits()
    assert session.stopped is None
    taken = waiting[0]
    assert taken is not None
    session.started(taken.attempt_id)
    sessions.clock.now += 3600
    session.check_limits()
    assert session.stopped is not None
    assert "1 hour" in session.stopped.reason
    assert sessions.ledger.trial_attempts(taken.trial_key)[0].taken_at is not None


def test_waiting_for_a_slot_of_an_engine_costs_nothing(sessions: Sessions) -> None:
    """An attempt is queued for ten hours, and costs from the moment it has its slot, not from its report."""
    sweep = sessions.sweep(8)
    sweep = replace(sweep, budget=sweep.budget.model_copy(update={"hours": 1.0}))
    session = sessions.open(sweep)
    waiting = session.next_assignment()
    assert waiting is not None
    in_queue = Outcome(waiting.attempt_id, 0, done=False, metrics={}, queued=True, engine="engine")
    for _ in range(20):
        session.reported(waiting.attempt_id, in_queue)
        sessions.clock.now += 1800
        session.check_limits()
    assert session.stopped is None
    assert session.running[waiting.attempt_id].started, "signs of life are expected of it"
    assert sessions.ledger.trial_attempts(waiting.trial_key)[0].taken_at is None
    session.reported(waiting.attempt_id, replace(in_queue, queued=False, training=True, held=600.0))
    sessions.clock.now += 2990
    session.check_limits()
    assert session.stopped is None
    sessions.clock.now += 20
    session.check_limits()
    assert session.stopped is not None
    assert "1 hour" in session.stopped.reason


def test_the_time_before_a_first_report_is_charged(sessions: Sessions) -> None:
    """Attempts of less than a second report before they could tell that they have a slot."""
    session = sessions.open(sessions.sweep(8))
    for _ in range(2):
        assignment = session.next_assignment()
        assert assignment is not None
        sessions.clock.now += 0.4
        session.reported(assignment.attempt_id, replace(outcome(assignment, 10, 0.5), held=0.3))
        sessions.clock.now += 0.1
        session.reported(assignment.attempt_id, outcome(assignment, 30, 0.5))
        session.completed(assignment.attempt_id)
    assert session._attempts.spent().hours * 3600 == pytest.approx(0.8)


def test_time_that_two_attempts_share_counts_once_in_the_hours_of_a_sweep() -> None:
    spending = Spending(HoursSpent(0.0, 0.0), 0.0)
    spending.take("first", 10.0)
    spending.end("first", 20.0)
    spending.take("second", 19.5)
    spending.end("second", 30.0)
    assert spending.total(30.0).hours * 3600 == pytest.approx(20.0)


def test_an_outage_of_the_database_is_charged_to_nobody(sessions: Sessions) -> None:
    """An attempt ends in an outage of an hour, another after it, and a third is taken after it."""
    sweep = sessions.sweep(8)
    sweep = replace(sweep, budget=sweep.budget.model_copy(update={"hours": 0.5}))
    session = sessions.open(sweep, capacity=3)
    first, second = launch(session), launch(session)
    sessions.clock.now += 60
    keep_waiting(sessions, 3600.0)
    train(session, first)
    third = launch(session)
    sessions.clock.now += 60
    session.reported(second.attempt_id, outcome(second, 10, 0.5))
    session.check_limits()
    assert session.stopped is None
    train(session, second, until=30)
    train(session, third, until=30)
    attempts = [sessions.ledger.trial_attempts(each.trial_key)[0] for each in (first, second, third)]
    assert [attempt.outage_seconds for attempt in attempts] == [3600.0, 3600.0, None]


def test_an_outage_is_not_charged_by_the_driver_that_follows_a_dead_one(sessions: Sessions) -> None:
    """The next report records for how long the driver has waited: it may die before the attempt ends."""
    sweep = sessions.sweep(8)
    session = sessions.open(sweep, capacity=1)
    assignment = launch(session)
    keep_waiting(sessions, 3600.0)
    session.reported(assignment.attempt_id, outcome(assignment, 10, 0.5))
    sessions.writer(sweep).lose_attempts()
    (attempt,) = sessions.ledger.trial_attempts(assignment.trial_key)
    assert (attempt.state, attempt.outage_seconds) == ("LOST", 3600.0)


def keep_waiting(sessions: Sessions, seconds: float) -> None:
    """Let a transaction of the driver wait for its database."""
    clock = sessions.clock
    clock.now += seconds
    sessions.ledger.outages.add(clock.now - seconds, clock.now)


# ------------------------------------------------------------------ retries


def past(*causes: str) -> list[AttemptRecord]:
    return [
        AttemptRecord(f"s-0.{n}", "s-0", n, "FAILED", cause, None, 0.0, 1.0)
        for n, cause in enumerate(causes, 1)
    ]


@pytest.mark.parametrize("cause", sorted(UNCHARGED))
def test_a_cause_that_says_nothing_about_the_trial_is_never_charged(cause: str) -> None:
    assert wait_before_retry(cause, past(*[cause] * 100)) == (2.0 if cause == FOREIGN else 0.0)


@pytest.mark.parametrize("cause", sorted(ALLOWED_RETRIES))
def test_each_cause_has_its_own_number_of_retries(cause: str) -> None:
    allowed = ALLOWED_RETRIES[cause]
    assert wait_before_retry(cause, past(*[cause] * (allowed - 1))) is not None
    assert wait_before_retry(cause, past(*[cause] * allowed)) is None


@pytest.mark.parametrize("cause", ["non-finite", "bad data"])
def test_a_cause_that_would_only_occur_again_is_not_retried(cause: str) -> None:
    assert wait_before_retry(cause, []) is None


def test_the_wait_doubles_up_to_a_cap() -> None:
    waits = [wait_before_retry("error", past(*["worker lost"] * n)) for n in range(8)]
    assert waits[:4] == [2.0, 4.0, 8.0, 16.0]
    assert waits[-1] == BACKOFF_CAP_SECONDS


def test_progress_makes_earlier_failures_void() -> None:
    """Of four lost workers in a week, only those since the last new report count."""
    lost = past(*["worker lost"] * 4)
    assert wait_before_retry("worker lost", lost) is None
    assert wait_before_retry("worker lost", lost, progressed={"s-0.2"}) is None
    assert wait_before_retry("worker lost", lost, progressed={"s-0.3"}) == 8.0
    assert wait_before_retry("worker lost", lost, progressed={"s-0.1", "s-0.4"}) == 4.0


def test_interruptions_do_not_lengthen_the_wait() -> None:
    assert wait_before_retry("error", past("interrupted", "node lost", "interrupted")) == 2.0


# ------------------------------------------------------------------ missing nodes


def running(reported_at: float, *, started: bool) -> Running:
    return Running(
        sweeps.trial(0, "RUNNING"),
        None,
        0,
        None,
        None,
        reported_at,
        started_at=reported_at if started else None,
    )


@pytest.mark.parametrize(("placed", "patience"), [(True, SLOW_START), (False, SLOW_PLACEMENT)])
def test_a_worker_may_take_longer_to_start_than_its_resources_to_come(placed: bool, patience: float) -> None:
    waiting, runs = running(0.0, started=False), running(0.0, started=True)
    assert any_active([waiting], patience, lambda: placed)
    assert not any_active([waiting], patience + 1, lambda: placed)
    assert any_active([waiting, runs], patience + 1, lambda: placed)
    assert not any_active([], 0.0, lambda: placed)


def test_a_sweep_without_any_node_stops_after_a_while(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(1), capacity=0)
    session.check_limits()
    assert session.stopped is None
    sessions.clock.now += NODE_WAIT + 1
    session.check_limits()
    assert session.stopped is not None
    assert session.stopped.state == "INTERRUPTED"


def test_waiting_for_a_node_is_a_state_with_a_reason(sessions: Sessions) -> None:
    """It ends when a node joins."""
    sweep = sessions.sweep(1)
    session = sessions.open(sweep, capacity=0)
    sessions.resources.reason = "no node with 1 GPU; 3 nodes, 0 free"
    session.check_limits()
    waiting = sessions.ledger.sweep(sweep.id)
    assert waiting is not None
    assert (waiting.state, waiting.reason) == ("WAITING", "no node with 1 GPU; 3 nodes, 0 free")
    assert (session.progress().state, session.progress().reason) == (waiting.state, waiting.reason)
    sessions.resources.attempts = 1
    session.check_limits()
    record = sessions.ledger.sweep(sweep.id)
    assert record is not None
    assert (record.state, record.reason) == ("RUNNING", None)
    train(session, launch(session))
    assert (session.progress().state, session.progress().reason) == ("RUNNING", None)


def test_a_sweep_whose_attempts_get_no_resources_waits_and_then_stops(sessions: Sessions) -> None:
    """Nodes that others use do not count, and the trial is not charged for them."""
    sweep = sessions.sweep(1)
    session = sessions.open(sweep, capacity=1)
    assignment = session.next_assignment()
    assert assignment is not None
    sessions.clock.now += SLOW_PLACEMENT + 1
    session.check_limits()
    assert session.progress().reason is not None
    sessions.clock.now += NODE_WAIT + 1
    session.check_limits()
    assert session.stopped is None, "nodes that are in use become free"
    sessions.clock.now += BUSY_WAIT
    session.check_limits()
    assert session.stopped is not None
    assert session.stopped.state == "INTERRUPTED"
    assert session.finished
    assert sessions.ledger.trial(assignment.trial_key).state == "PREEMPTED"
    session.reported(assignment.attempt_id, outcome(assignment, 10, 0.5))  # a worker that started too late
    assert sessions.ledger.trial_reports(assignment.trial_key) == []
