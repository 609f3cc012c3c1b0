"""The contract of the ledger, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import math
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.ledger.integrity import examine
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue.queue_settings import ask_to_stop, asked_to_stop
from orchestrator.ledger.sweeps.records import (
    AttemptRecord,
    CurvePoint,
    EvaluationRecord,
    Event,
    ReportRecord,
    pack_scores,
)
from tests.orchestrator.ledger.examples import (
    SWEEP_ID,
    SetClock,
    complete,
    create_sweep,
    event,
    everything,
    saved,
    sweep_record,
    trial_record,
    writer,
)

KEY = f"{SWEEP_ID}-0"


@pytest.fixture
def begun(ledger: Ledger) -> tuple[Ledger, AttemptRecord]:
    """Return a ledger in which attempt 1 of trial 0 is running."""
    create_sweep(ledger)
    writer(ledger).add_trial(trial_record())
    return ledger, writer(ledger).start_attempt(KEY)


SCALARS = st.one_of(
    st.none(),
    st.floats(allow_nan=False),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    st.sampled_from(["1e3", "2024-01-01", "on", "null", "0x10", "1_000", "8", "8.0", "nan", "-0.0", ""]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow_after(1)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(value=-0.0, params={"a": -0.0, "b": 8, "c": 8.0, "d": True, "e": 2**53 + 1, "f": "1e3"})
@example(value=5e-324, params={"a": 5e-324, "b": -(2**63), "c": 0.1 + 0.2})
@given(st.floats(allow_nan=False), st.dictionaries(st.sampled_from("abcdef"), VALUES, max_size=6))
def test_a_value_keeps_its_type_and_all_digits(url: str, value: float, params: dict[str, object]) -> None:
    """Also a zero with a sign, which SQLite stores without: it is no damage."""
    ledger = Ledger.open(url)
    number = len(ledger.trials(SWEEP_ID)) if ledger.sweep(SWEEP_ID) else 0
    if not number:
        create_sweep(ledger)
    writer(ledger).add_trial(trial_record(number, params=params, value=value, state="COMPLETE"))
    ledger.close()
    again = Ledger.open(url)
    trial = again.trial(f"{SWEEP_ID}-{number}")
    assert trial is not None
    assert json.dumps(trial.params, sort_keys=True) == json.dumps(params, sort_keys=True)
    assert repr(trial.value) == repr(value + 0.0)
    examine(again, SWEEP_ID, ())
    again.close()


def test_records_are_read_as_they_were_written(url: str) -> None:
    """Every field is equal, floats to the last bit, through another connection."""
    ledger = Ledger.open(url, system=SetClock(1_790_000_002.25))
    create_sweep(ledger)
    writer(ledger).add_trial(trial_record(1))
    key = complete(ledger, 0)
    metrics = {"test/accuracy": 0.1 + 0.2}
    evaluation = EvaluationRecord(key, 30, "test", metrics, 1_790_000_009.0, pack_scores([1.0, 0.0]))
    writer(ledger).add_evaluation(evaluation)
    ledger.close()

    again = Ledger.open(url)
    assert again.sweep(SWEEP_ID) == sweep_record()
    assert again.sweeps() == [sweep_record()]
    assert again.trial(f"{SWEEP_ID}-1") == trial_record(1)
    now = 1_790_000_002.25
    done = replace(
        trial_record(0), state="COMPLETE", value=1.0, best_step=30, step=30, attempts=1, finished_at=now
    )
    done = replace(done, reported_at=again.trial_reports(key)[-1].at)
    assert again.trials(SWEEP_ID) == [done, trial_record(1)]
    assert again.trial_attempts(key) == [AttemptRecord(f"{key}.1", key, 1, "ENDED", None, "node-1", now, now)]
    metrics = {"val/accuracy": 10 / 30, "train/loss": 0.1}
    assert again.trial_reports(key)[0] == ReportRecord(key, 10, f"{key}.1", metrics, now)
    assert again.reports(SWEEP_ID) == again.trial_reports(key)
    assert [(row.kind, row.step) for row in again.trial_checkpoints(key)] == [
        ("best", 30),
        ("last", 30),
        ("best", 20),
        ("last", 20),
    ]
    assert again.trial_checkpoints(key)[0] == saved(key, 30, "best")
    assert again.evaluations(SWEEP_ID) == [evaluation]
    again.close()


def test_a_sweep_may_have_the_name_of_a_trial_of_another(ledger: Ledger) -> None:
    """The second sweep of a file is `x-2`, and so is trial 2 of the first one."""
    create_sweep(ledger)
    key = complete(ledger, 2)
    create_sweep(ledger, replace(sweep_record(), id=key))
    assert ledger.trials(key) == []
    assert (ledger.attempts(key), ledger.reports(key), ledger.checkpoints(key)) == ([], [], [])
    assert ledger.curves(key, ["val/accuracy"]) == []
    assert [attempt.number for attempt in ledger.trial_attempts(key)] == [1]
    assert {report.step for report in ledger.trial_reports(key)} == {10, 20, 30}
    assert ledger.trial_reports(key) == ledger.reports(SWEEP_ID)
    assert ledger.trial_checkpoints(key) == ledger.checkpoints(SWEEP_ID) != []


def test_adding_is_idempotent(ledger: Ledger) -> None:
    """A sweep, a trial or an evaluation that is added twice exists once, and so do its events."""
    evaluation = EvaluationRecord(KEY, 1, "test", {}, 3.0)
    for turn in range(2):
        create_sweep(ledger, sweep_record(reason=f"turn {turn}"), [event(SWEEP_ID, 1)])
        writer(ledger).add_trial(trial_record(cause=f"turn {turn}"), [event(KEY, 2)])
        writer(ledger).add_evaluation(evaluation, [event(KEY, 3)])
    assert ledger.sweep(SWEEP_ID) == sweep_record(reason="turn 0")
    assert ledger.trials(SWEEP_ID) == [trial_record(cause="turn 0")]
    assert ledger.evaluations(SWEEP_ID) == [evaluation]
    assert [row.event.at_ms for row in ledger.pending(SWEEP_ID, 10).events] == [1, 2, 3]


def test_no_attempt_starts_in_a_sweep_that_its_driver_abandons(ledger: Ledger) -> None:
    """The thread that launches attempts still runs when another one ends the process."""
    create_sweep(ledger)
    write, first, second = writer(ledger), trial_record(0), trial_record(1)
    for trial in (first, second):
        write.add_trial(trial)
    write.start_attempt(first.key)
    write.abandon_sweep("stopped by SIGINT")
    for trial in (first, second):
        with pytest.raises(ValueError, match="is INTERRUPTED"):
            write.start_attempt(trial.key)
    assert ledger.sweep(SWEEP_ID).state == "INTERRUPTED"
    assert [attempt.state for attempt in ledger.attempts(SWEEP_ID)] == ["LOST"]


def test_a_lost_attempt_ends_with_its_last_report(url: str) -> None:
    """The time until the next driver starts is not charged."""
    clock = SetClock(100.0)
    ledger = Ledger.open(url, system=clock)
    create_sweep(ledger)
    for number in range(3):
        writer(ledger).add_trial(trial_record(number))
        clock.now += 10
        writer(ledger).start_attempt(trial_record(number).key)
    reported, silent, done = (trial_record(number).key for number in range(3))
    writer(ledger).record_report(f"{reported}.1", 10, {"val/accuracy": 0.5})
    writer(ledger).end_attempt(f"{done}.1", "ENDED", trial_state="PRUNED")
    clock.now += 30_000
    assert writer(ledger).lose_attempts() == 2
    assert writer(ledger).lose_attempts() == 0
    ends = [ledger.trial_attempts(key)[0] for key in (reported, silent, done)]
    assert [(attempt.state, attempt.ended_at) for attempt in ends] == [
        ("LOST", 130),
        ("LOST", 120),
        ("ENDED", 130),
    ]
    assert [ledger.trial(key).state for key in (reported, silent, done)] == ["PREEMPTED"] * 2 + ["PRUNED"]
    again = writer(ledger).start_attempt(reported)
    ledger.close()
    assert (again.number, again.started_at) == (2, clock.now)


def test_a_stop_request_lasts_until_it_is_deleted(ledger: Ledger) -> None:
    """Any machine that reaches the ledger can make one."""
    assert asked_to_stop(ledger, SWEEP_ID) is None
    ask_to_stop(ledger, SWEEP_ID)
    ask_to_stop(ledger, SWEEP_ID)
    assert asked_to_stop(ledger, SWEEP_ID) == socket.gethostname()
    assert asked_to_stop(ledger, "another") is None
    writer(ledger).forget_stop_request()
    assert asked_to_stop(ledger, SWEEP_ID) is None


def test_a_step_is_reported_once(begun: tuple[Ledger, AttemptRecord]) -> None:
    """A second report of a step, from a repeated interval, changes nothing and emits no event."""
    ledger, attempt = begun
    writer(ledger).record_report(attempt.id, 10, {"val/accuracy": 0.5}, events=[event(KEY, 1)])
    writer(ledger).record_report(attempt.id, 10, {"val/accuracy": 0.75}, events=[event(KEY, 2)])
    assert [report.metrics for report in ledger.trial_reports(KEY)] == [{"val/accuracy": 0.5}]
    pending = ledger.pending(SWEEP_ID, 10)
    assert [row.event for row in pending.events] == [event(KEY, 1)]
    assert pending.reports == ledger.trial_reports(KEY)
    assert ledger.trial(KEY).step == 10


def test_a_repeated_interval_replaces_its_checkpoint(begun: tuple[Ledger, AttemptRecord]) -> None:
    """A step that is trained again because its checkpoint was damaged replaces the checkpoint."""
    ledger, attempt = begun
    writer(ledger).record_report(attempt.id, 10, {}, [saved(KEY, 10)])
    fresh = replace(saved(KEY, 10), digest="cd" * 32)
    assert writer(ledger).record_report(attempt.id, 10, {}, [fresh]) == ()
    assert ledger.trial_checkpoints(KEY) == [fresh]


def test_a_checkpoint_between_two_reports_is_kept(begun: tuple[Ledger, AttemptRecord]) -> None:
    """An interrupted interval leaves one: its step and checkpoint count, without a report."""
    ledger, attempt = begun
    writer(ledger).record_report(attempt.id, 10, {"val/accuracy": 0.5}, [saved(KEY, 10)])
    writer(ledger).record_report(attempt.id, 13, {}, [saved(KEY, 13)])
    assert [report.step for report in ledger.trial_reports(KEY)] == [10]
    assert [row.step for row in ledger.trial_checkpoints(KEY)] == [13, 10]
    assert ledger.trial(KEY).step == 13


def test_reports_of_an_earlier_attempt_are_ignored(begun: tuple[Ledger, AttemptRecord]) -> None:
    """Once a trial was started again, its earlier attempt can neither report nor end it."""
    ledger, first = begun
    second = writer(ledger).start_attempt(KEY)
    assert (second.number, ledger.trial_attempts(KEY)[0].state) == (2, "LOST")
    assert (
        writer(ledger).record_report(first.id, 10, {"val/accuracy": 1.0}, [saved(KEY, 10)], [event(KEY, 1)])
        == ()
    )
    assert not writer(ledger).end_attempt(first.id, "ENDED", None, "COMPLETE", 1.0, 10, [event(KEY, 2)])
    assert ledger.trial(KEY).state == "RUNNING"
    assert (ledger.trial_reports(KEY), ledger.trial_checkpoints(KEY), ledger.backlog(SWEEP_ID)) == ([], [], 0)
    writer(ledger).record_report(second.id, 10, {"val/accuracy": 0.25})
    assert ledger.trial_reports(KEY)[0].attempt_id == second.id


def test_reports_after_the_end_are_ignored(begun: tuple[Ledger, AttemptRecord]) -> None:
    """An attempt that has ended adds no report."""
    ledger, attempt = begun
    writer(ledger).end_attempt(attempt.id, "LOST", "node died")
    assert writer(ledger).record_report(attempt.id, 10, {"val/accuracy": 1.0}) == ()
    assert ledger.trial_reports(KEY) == []


def test_two_generations_of_checkpoints_are_kept(begun: tuple[Ledger, AttemptRecord]) -> None:
    """The third one of a kind supersedes the first, unless another kind needs its folder."""
    ledger, attempt = begun
    folders = [
        writer(ledger).record_report(attempt.id, 10, {}, [saved(KEY, 10), saved(KEY, 10, "best")]),
        writer(ledger).record_report(attempt.id, 20, {}, [saved(KEY, 20)]),
        writer(ledger).record_report(attempt.id, 30, {}, [saved(KEY, 30)]),
        writer(ledger).record_report(attempt.id, 40, {}, [saved(KEY, 40), saved(KEY, 40, "best")]),
        writer(ledger).record_report(attempt.id, 50, {}, [saved(KEY, 50), saved(KEY, 50, "best")]),
    ]
    path = {step: Path(saved(KEY, step).path) for step in (10, 20, 30, 40, 50)}
    assert folders == [(), (), (), (path[20],), (path[10], path[30])]
    assert {(row.kind, row.step) for row in ledger.trial_checkpoints(KEY)} == {
        ("last", 50),
        ("last", 40),
        ("best", 50),
        ("best", 40),
    }


def test_a_pinned_checkpoint_is_never_superseded(begun: tuple[Ledger, AttemptRecord]) -> None:
    """A checkpoint that another trial continues from stays until it is dropped."""
    ledger, attempt = begun
    writer(ledger).record_report(attempt.id, 10, {}, [saved(KEY, 10), saved(KEY, 10, "pinned")])
    for step in (20, 30, 40):
        assert Path(saved(KEY, 10).path) not in writer(ledger).record_report(
            attempt.id, step, {}, [saved(KEY, step)]
        )
    assert [row.step for row in ledger.trial_checkpoints(KEY) if row.kind == "pinned"] == [10]
    writer(ledger).drop_checkpoint(KEY, Path(saved(KEY, 10).path))
    assert [row.step for row in ledger.trial_checkpoints(KEY)] == [40, 30]


def test_a_damaged_checkpoint_is_dropped(begun: tuple[Ledger, AttemptRecord]) -> None:
    """After that the generation behind it is the newest."""
    ledger, attempt = begun
    for step in (10, 20):
        writer(ledger).record_report(attempt.id, step, {}, [saved(KEY, step), saved(KEY, step, "best")])
    writer(ledger).drop_checkpoint(KEY, Path(saved(KEY, 20).path))
    assert [(row.kind, row.step) for row in ledger.trial_checkpoints(KEY)] == [("best", 10), ("last", 10)]


def test_an_attempt_and_its_trial_end_together(begun: tuple[Ledger, AttemptRecord]) -> None:
    """Their end is recorded once, at one time, with one event."""
    ledger, attempt = begun
    for _ in range(2):
        writer(ledger).end_attempt(attempt.id, "ENDED", None, "PRUNED", 0.5, 10, [event(KEY, 9)])
    trial = ledger.trial(KEY)
    assert (trial.state, trial.value, trial.best_step) == ("PRUNED", 0.5, 10)
    assert trial.finished_at == ledger.trial_attempts(KEY)[0].ended_at is not None
    assert ledger.backlog(SWEEP_ID) == 1
    with pytest.raises(ValueError, match="is PRUNED"):
        writer(ledger).start_attempt(KEY)


@pytest.mark.parametrize(("attempt_state", "trial_state"), [("LOST", "PREEMPTED"), ("FAILED", "WAITING")])
def test_a_trial_waits_for_its_next_attempt(
    begun: tuple[Ledger, AttemptRecord], attempt_state: str, trial_state: str
) -> None:
    """Without a state for the trial it will be started again; a lost attempt is not charged."""
    ledger, attempt = begun
    writer(ledger).end_attempt(attempt.id, attempt_state, "why")  # type: ignore[arg-type]
    trial = ledger.trial(KEY)
    assert (trial.state, trial.cause, trial.finished_at) == (trial_state, "why", None)
    assert writer(ledger).start_attempt(KEY).number == 2
    assert ledger.trial(KEY).attempts == 2


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_no_trial_is_complete_without_a_number(
    begun: tuple[Ledger, AttemptRecord], value: float | None
) -> None:
    """A refused change leaves no trace, not even an event."""
    ledger, attempt = begun
    before = everything(ledger)
    with pytest.raises(ValueError, match="finite"):
        writer(ledger).end_attempt(attempt.id, "ENDED", None, "COMPLETE", value, 10, [event(KEY, 1)])
    with pytest.raises(ValueError, match="states"):
        writer(ledger).end_attempt(attempt.id, "ENDED", None, "DONE", 1.0, 10, [event(KEY, 1)])  # type: ignore[arg-type]
    assert everything(ledger) == before


def test_a_failed_trial_can_be_reopened(begun: tuple[Ledger, AttemptRecord]) -> None:
    """A trial in another state stays as it is."""
    ledger, attempt = begun
    writer(ledger).reopen("again", [KEY])
    assert ledger.trial(KEY).state == "RUNNING"
    writer(ledger).end_attempt(attempt.id, "FAILED", "out of memory", "FAILED")
    writer(ledger).reopen("again", [KEY])
    trial = ledger.trial(KEY)
    assert (trial.state, trial.cause, trial.finished_at, trial.attempts) == ("WAITING", None, None, 1)


def test_a_sweep_is_reopened_with_all_its_trials_or_not_at_all(begun: tuple[Ledger, AttemptRecord]) -> None:
    """Once it is INTERRUPTED the next driver retries nothing more, so no trial may be left for later."""
    ledger, attempt = begun
    writer(ledger).end_attempt(attempt.id, "FAILED", "error", "FAILED")
    writer(ledger).set_sweep_state("FAILED")
    before = everything(ledger)
    with pytest.raises(KeyError, match="no trial"):
        writer(ledger).reopen("again", [KEY, "a trial that does not exist"])
    assert everything(ledger) == before
    writer(ledger).reopen("again", [KEY])
    sweep = ledger.sweep(SWEEP_ID)
    assert sweep is not None
    assert (sweep.state, sweep.reason, sweep.finished_at) == ("INTERRUPTED", "again", None)
    assert ledger.trial(KEY).state == "WAITING"


def test_a_sweep_changes_its_state(ledger: Ledger) -> None:
    """Only a finished sweep has a time of its end; a resumed one loses it."""
    create_sweep(ledger)
    writer(ledger).set_sweep_state("PAUSED", "disk full", [event(SWEEP_ID, 1)])
    assert ledger.sweep(SWEEP_ID) == sweep_record(state="PAUSED", reason="disk full")
    writer(ledger).set_sweep_state("COMPLETE")
    finished = ledger.sweep(SWEEP_ID)
    assert finished is not None
    assert finished.finished_at is not None
    writer(ledger).amend_sweep({"budget": 9}, "dd", {"metric": "val/loss"})
    writer(ledger).set_sweep_state("RUNNING")
    amended = sweep_record(document={"budget": 9}, digest="dd", facts={"metric": "val/loss"})
    assert ledger.sweep(SWEEP_ID) == amended


def test_the_outbox_keeps_the_order(ledger: Ledger) -> None:
    """Events of a sweep are pending in the order in which they happened, until they are delivered.

    They are kept to be delivered again.
    """
    started = Event("start", SWEEP_ID, {"name": SWEEP_ID}, 2)
    create_sweep(ledger, sweep_record(), [event(SWEEP_ID, 1), started])
    create_sweep(ledger, sweep_record(id="other"), [event("other", 3)])
    writer(ledger).add_trial(trial_record(), [event(KEY, 4)])
    pending = ledger.pending(SWEEP_ID, 2)
    assert [row.event for row in pending.events] == [event(SWEEP_ID, 1), started]
    writer(ledger).delivered(pending)
    writer(ledger).delivered(pending)
    assert [row.event.at_ms for row in ledger.pending(SWEEP_ID, 10).events] == [4]
    assert (ledger.backlog(SWEEP_ID), ledger.backlog("other")) == (1, 1)
    writer(ledger).redeliver()
    assert [row.event.at_ms for row in ledger.pending(SWEEP_ID, 10).events] == [1, 2, 4]


def test_a_report_is_pending_until_the_position_of_its_run_has_reached_it(ledger: Ledger) -> None:
    """Each trial has a position of its own, whatever the order of the times of two trials."""
    create_sweep(ledger)
    write = writer(ledger)
    keys = [trial_record(number).key for number in range(2)]
    for number, key in enumerate(keys):
        write.add_trial(trial_record(number))
        attempt = write.start_attempt(key)
        for step in (10, 20, 30):
            write.record_report(attempt.id, step, {"val/accuracy": 0.5}, at=1000.0 - 100 * number + step)
    write.record_mlflow_runs({SWEEP_ID: "own", **{key: key for key in keys}})
    first = ledger.pending(SWEEP_ID, 10, reports=4)
    assert [(row.trial_key, row.step) for row in first.reports] == [
        *((keys[0], step) for step in (10, 20, 30)),
        (keys[1], 10),
    ]
    write.delivered(first, 7)
    write.delivered(first, 7)
    assert [(row.trial_key, row.step) for row in ledger.pending(SWEEP_ID, 10).reports] == [
        (keys[1], 20),
        (keys[1], 30),
    ]
    assert (ledger.backlog(SWEEP_ID), ledger.mlflow_batch(SWEEP_ID)) == (2, 7)
    write.record_mlflow_runs({keys[0]: "another run, which is empty"})
    assert ledger.backlog(SWEEP_ID) == 5
    write.redeliver()
    assert (ledger.backlog(SWEEP_ID), ledger.mlflow_batch(SWEEP_ID)) == (6, 7)


def test_no_report_is_pending_before_the_start_of_its_run_is_among_the_events(ledger: Ledger) -> None:
    create_sweep(ledger, sweep_record(), [event(SWEEP_ID, 1)])
    write = writer(ledger)
    write.add_trial(trial_record(), [Event("start", KEY, {}, 2)])
    attempt = write.start_attempt(KEY)
    write.record_report(attempt.id, 10, {"val/accuracy": 0.5})
    few, all_of_it = ledger.pending(SWEEP_ID, 2), ledger.pending(SWEEP_ID, 3)
    assert (len(few.events), few.reports) == (2, [])
    assert [row.event.kind for row in all_of_it.events] == ["metrics", "start"]
    assert [row.step for row in all_of_it.reports] == [10]


def test_a_report_whose_run_is_not_recorded_has_no_position(ledger: Ledger) -> None:
    create_sweep(ledger)
    key = complete(ledger, 0)
    with pytest.raises(KeyError, match=f"no run of MLflow for '{key}'"):
        writer(ledger).delivered(ledger.pending(SWEEP_ID, 100))


def test_trials_of_a_role_and_states(ledger: Ledger) -> None:
    """Confirmations are separate from the search, and are not counted with it."""
    create_sweep(ledger)
    for number in (1, 0):
        writer(ledger).add_trial(trial_record(number))
    writer(ledger).add_trial(trial_record(0, key=f"{SWEEP_ID}-c0", role="confirmation"))
    writer(ledger).start_attempt(KEY)
    assert [trial.key for trial in ledger.trials(SWEEP_ID)] == [KEY, f"{SWEEP_ID}-1", f"{SWEEP_ID}-c0"]
    assert [trial.key for trial in ledger.trials(SWEEP_ID, "confirmation")] == [f"{SWEEP_ID}-c0"]
    assert ledger.states(SWEEP_ID) == {"RUNNING": 1, "WAITING": 1}


def test_any_text_can_be_kept(begun: tuple[Ledger, AttemptRecord]) -> None:
    """The output of a dying process is kept in readable form, with NUL bytes and broken characters."""
    ledger, attempt = begun
    writer(ledger).end_attempt(attempt.id, "FAILED", "killed \0 \udcff ü'; DROP TABLE trial;--", "FAILED")
    assert ledger.trial(KEY).cause == "killed \\0 \\udcff ü'; DROP TABLE trial;--"


def test_unknown_names_are_reported(ledger: Ledger) -> None:
    """The error names the key."""
    assert ledger.sweep("nothing") is None
    assert ledger.trials("nothing") == []
    with pytest.raises(KeyError, match="nothing-1"):
        ledger.trial("nothing-1")
    with pytest.raises(KeyError, match="nothing-1"):
        writer(ledger).start_attempt("nothing-1")


def test_reports_keep_their_order_when_the_clock_is_set_back(url: str) -> None:
    """Stopping rules replay the reports in the order of their times; another order decides otherwise."""
    clock = SetClock(1000.0)
    ledger = Ledger.open(url, system=clock)
    create_sweep(ledger)
    first = writer(ledger)
    first.add_trial(trial_record(0))
    attempt = first.start_attempt(KEY)
    first.record_report(attempt.id, 10, {"val/accuracy": 0.5})
    clock.now = 100.0
    first.record_report(attempt.id, 20, {"val/accuracy": 0.6})
    clock.now = 50.0
    writer(ledger).record_report(attempt.id, 30, {"val/accuracy": 0.7})
    times = [report.at for report in ledger.reports(SWEEP_ID)]
    ledger.close()
    assert times == sorted(set(times))


def test_ends_of_trials_keep_their_order_when_the_clock_is_set_back(url: str) -> None:
    """`no_improvement` counts the trials in the order of their ends, also after a restart."""
    clock = SetClock(1000.0)
    ledger = Ledger.open(url, system=clock)
    create_sweep(ledger)
    first = writer(ledger)
    for number in range(3):
        own = first if number < 2 else writer(ledger)
        own.add_trial(trial_record(number))
        attempt = own.start_attempt(f"{SWEEP_ID}-{number}")
        own.end_attempt(attempt.id, "ENDED", None, trial_state="FAILED")
        clock.now -= 450.0
    times = [trial.finished_at for trial in ledger.trials(SWEEP_ID)]
    ledger.close()
    assert None not in times
    assert times == sorted(set(times))


ODD = {
    'a "loss"': 1.0,
    "loss": 0.1 + 0.2,
    'loss":1,"loss': 2.0,
    "train,{loss": -1e-300,
    "val/accuracy": math.nan,
    "val/loss": -math.inf,
    "ü": 5e-324,
}


@pytest.mark.parametrize("names", [["val/accuracy"], ["val/loss", "loss", "absent"], list(ODD)])
def test_curves_hold_the_named_metrics_of_all_reports(
    begun: tuple[Ledger, AttemptRecord], names: list[str]
) -> None:
    """Whatever the names are: the metrics are searched for them, not parsed."""
    ledger, attempt = begun
    write = writer(ledger)
    write.record_report(attempt.id, 10, ODD)
    write.record_report(attempt.id, 20, {"loss": 3.0})
    expected = [
        CurvePoint(row.trial_key, row.step, {n: row.metrics[n] for n in names if n in row.metrics}, row.at)
        for row in ledger.reports(SWEEP_ID)
    ]
    assert len(expected) == 2
    assert repr(ledger.curves(SWEEP_ID, names)) == repr(expected), "compared as text: NaN is not equal to NaN"
    assert repr(examine(ledger, SWEEP_ID, names).curves) == repr(expected)
