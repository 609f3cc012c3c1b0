"""Decisions of the service for every state of a submission."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import Exit
from orchestrator.ledger.queue.submissions import Submission
from orchestrator.service.start_order import LONGEST_BACKOFF_SECONDS, STARTING_AT_ONCE, Situation
from orchestrator.service.supervision import (
    BEGIN_SECONDS,
    MOST_CRASHES,
    PAUSE_SECONDS,
    backoff,
    next_actions,
    transition_of,
)
from tests.orchestrator.service.situations import queued, started, submission, sweep

NOW = 1_000.0


def after(situation: Situation, now: float = NOW) -> Submission:
    """Return the submission after the next actions, its start included."""
    actions = next_actions([situation], now)
    seen = situation.submission
    for transition in actions.transitions:
        seen = replace(seen, **transition.columns)
    if seen in actions.starts:
        seen = replace(seen, state="STARTED", starts=seen.starts + 1, started_at=now, driver=None, code=None)
    return seen


@pytest.mark.parametrize(
    ("situation", "state", "cause"),
    [
        (queued(), "STARTED", None),
        (queued(next_try=NOW + 1), "QUEUED", None),
        (replace(queued(), is_driven=True), "QUEUED", None),
        (replace(queued(), stopped_by="node"), "ENDED", "stopped by `stop` on node"),
        (queued(state="PARKED", cause="it crashed"), "PARKED", "it crashed"),
        (replace(queued(state="PARKED"), sweep=sweep("COMPLETE")), "ENDED", None),
        (started(), "STARTED", None),
        (started(is_driven=True, process="dead"), "STARTED", None),
        (started(is_driven=True, stopped_by="node"), "STARTED", None),
        (started(stopped_by="node"), "STARTED", None),
        (started(process="dead", stopped_by="node"), "ENDED", "stopped by `stop` on node"),
        (started(code=0, stopped_by="node"), "ENDED", "stopped by `stop` on node"),
        (started(code=0, sweep=sweep("COMPLETE"), stopped_by="node"), "ENDED", None),
        (started(code=0, sweep=sweep("COMPLETE")), "ENDED", None),
        (started(code=3, sweep=sweep("FAILED")), "ENDED", None),
        (started(process="dead", sweep=sweep("COMPLETE")), "ENDED", None),
        (started(code=2, cause="bad data"), "ENDED", "bad data"),
        (started(code=4, sweep=sweep("INTERRUPTED", "no cluster")), "QUEUED", "no cluster"),
        (started(code=0, sweep=sweep("INTERRUPTED", "stopped by `stop`")), "QUEUED", "stopped by `stop`"),
        (started(code=6), "QUEUED", "another process drove it"),
        (started(code=-9, cause="killed"), "QUEUED", "killed"),
        (started(process="dead"), "QUEUED", "its driver vanished"),
        (started(at=NOW - BEGIN_SECONDS + 1, process="none"), "STARTED", None),
        (started(at=NOW - BEGIN_SECONDS, process="none"), "QUEUED", "its driver did not begin"),
        (started(at=NOW - BEGIN_SECONDS + 1, process="elsewhere"), "STARTED", None),
        (
            started(at=NOW - BEGIN_SECONDS, process="elsewhere"),
            "QUEUED",
            "the machine of its driver has ended",
        ),
    ],
)
def test_what_becomes_of_a_submission(situation: Situation, state: str, cause: str | None) -> None:
    left = after(situation)
    assert (left.state, left.cause) == (state, cause)


@pytest.mark.parametrize(
    ("situation", "code"),
    [
        (started(process="dead", sweep=sweep("COMPLETE")), Exit.COMPLETE),
        (started(process="dead", sweep=sweep("FAILED")), Exit.SOME_FAILED),
        (started(code=3, sweep=sweep("COMPLETE")), Exit.SOME_FAILED),
        (started(code=-9, sweep=sweep("COMPLETE")), Exit.COMPLETE),
        (started(code=4, sweep=sweep("FAILED")), Exit.SOME_FAILED),
        (started(code=0, stopped_by="node"), Exit.RESUMABLE),
    ],
)
def test_the_code_of_an_end(situation: Situation, code: Exit) -> None:
    """A driver that is killed while it writes the report has concluded the sweep, however it ended."""
    assert after(situation).code == code


@pytest.mark.parametrize(
    "driver",
    [
        {"process": "dead"},
        {"process": "elsewhere"},
        {"process": "none"},
        {"code": int(Exit.RESUMABLE)},
        {"code": int(Exit.BUSY)},
        {"code": -9},
    ],
    ids=lambda driver: "-".join(map(str, driver.values())),
)
def test_an_extension_whose_driver_ends_before_its_first_trial_is_not_over(driver: dict[str, Any]) -> None:
    """The sweep is still COMPLETE, from before the extension: no driver has entered it since."""
    extended = started(**driver, finished_before=500.0, sweep=sweep("COMPLETE"))
    left = after(extended)
    assert (left.state, left.code) == ("QUEUED", extended.submission.code)
    found = after(started(code=int(Exit.COMPLETE), finished_before=500.0, sweep=sweep("COMPLETE")))
    assert found.state == "ENDED", "the driver has found that nothing is left to do"
    stopped = after(replace(extended, stopped_by="node"))
    assert (stopped.state, stopped.code) == ("ENDED", Exit.RESUMABLE), "it can be resumed"


def test_a_parked_extension_stays_until_its_sweep_is_concluded_again() -> None:
    parked = queued(state="PARKED", finished_before=500.0)
    assert after(replace(parked, sweep=sweep("COMPLETE"))).state == "PARKED"
    concluded = replace(sweep("COMPLETE"), finished_at=600.0)
    assert after(replace(parked, sweep=concluded)).state == "ENDED"


def test_an_extension_that_has_only_been_started_does_not_end_the_pause() -> None:
    """Starts are paused, and the sweep that is tried alone had finished before."""
    crashed = [queued(name, crashed_at=NOW - number, next_try=NOW) for number, name in enumerate("abc")]
    probe = started("d", at=NOW, finished_before=500.0, sweep=sweep("COMPLETE"))
    assert next_actions([*crashed, probe], NOW + 1, paused_since=NOW - 1).paused_since == NOW - 1


def test_a_crash_is_counted_and_an_interruption_is_not() -> None:
    assert after(started(process="dead", crashes=2, tries=2)).crashes == 3
    interrupted = after(started(code=4, crashes=2, tries=2))
    assert (interrupted.crashes, interrupted.tries, interrupted.state) == (2, 3, "QUEUED")


@pytest.mark.parametrize(("reported_at", "crashes"), [(99.0, MOST_CRASHES), (99.5, 1)])
def test_a_report_of_the_newest_driver_resets_the_crashes(reported_at: float, crashes: int) -> None:
    """A report of an earlier driver does not. The clock was set back after the start."""
    counts = {"crashes": 4, "tries": 4, "reported_before": 99.0}
    crashed = after(started(at=100.0, process="dead", reported_at=reported_at, **counts))
    assert (crashed.crashes, crashed.tries) == (crashes, crashes)
    assert crashed.state == ("PARKED" if crashes == MOST_CRASHES else "QUEUED")


def test_a_lost_machine_is_no_crash() -> None:
    lost = after(started(process="elsewhere", crashes=4, tries=4))
    assert (lost.state, lost.crashes, lost.next_try) == ("QUEUED", 4, NOW)


@given(st.text(min_size=1), st.integers(1, 10_000))
def test_the_backoff_doubles_within_its_bounds(sweep_id: str, tries: int) -> None:
    expected = min(5.0 * 2.0 ** min(tries - 1, 20), LONGEST_BACKOFF_SECONDS)
    assert 0.8 * expected <= backoff(sweep_id, tries) <= 1.2 * expected
    assert backoff(sweep_id, tries) == backoff(sweep_id, tries)


def test_a_poison_submission_is_parked_after_five_crashes() -> None:
    """Each crash is followed by a longer wait, and no start comes before the wait is over."""
    seen, now, starts = submission(), 0.0, []
    while seen.state != "PARKED":
        seen = after(Situation(seen), now)
        assert seen.state == "STARTED"
        starts.append(now)
        seen = after(Situation(replace(seen, code=1, cause="KeyError: 'a'")), now)
        if seen.state == "QUEUED":
            assert after(Situation(seen), seen.next_try - 0.1).state == "QUEUED"
            now = seen.next_try
    assert len(starts) == MOST_CRASHES
    waits = [later - earlier for earlier, later in pairwise(starts)]
    assert all(0.8 * 5 * 2**n <= wait <= 1.2 * 5 * 2**n for n, wait in enumerate(waits))
    assert seen.cause == "KeyError: 'a'"


def crashed(sweep_id: str, at: float) -> Situation:
    """Return a sweep that has crashed and could be started again at any time."""
    return queued(sweep_id, crashed_at=at, crashes=1, tries=1, starts=1, started_at=at - 1)


def test_three_crashes_within_a_minute_pause_all_starts() -> None:
    two = [crashed("a", 990.0), crashed("b", 1_000.0), queued("other")]
    assert next_actions(two, 1_050.0).paused_since is None
    far_apart = [*two, crashed("c", 1_050.1)]
    assert next_actions(far_apart, 1_051.0).paused_since is None
    three = [*two, crashed("c", 1_049.0)]
    actions = next_actions(three, 1_050.0)
    assert actions.paused_since == 1_049.0
    assert not actions.starts


def test_the_third_crash_pauses_at_once() -> None:
    """The crash that the same poll detects counts."""
    third = started("c", at=1_040.0, code=1)
    actions = next_actions([crashed("a", 1_010.0), crashed("b", 1_020.0), third, queued("d")], 1_050.0)
    assert actions.paused_since == 1_050.0
    assert not actions.starts


def test_a_pause_lets_one_driver_try_after_a_minute() -> None:
    rows = [crashed("a", 1_000.0), crashed("b", 1_001.0), crashed("c", 1_002.0)]
    assert not next_actions(rows, 1_002.0 + PAUSE_SECONDS - 1, paused_since=1_002.0).starts
    [probe] = next_actions(rows, 1_002.0 + PAUSE_SECONDS, paused_since=1_002.0).starts
    rows[0] = started(probe.sweep_id, at=1_062.0, is_driven=True)
    actions = next_actions(rows, 1_500.0, paused_since=1_002.0)
    assert (actions.starts, actions.paused_since) == ([], 1_002.0), "the first one has not reported yet"


def test_a_clock_that_was_set_back_delays_nothing() -> None:
    """The rows were written an hour ahead of it."""
    now, ahead = 1_000.0, 4_600.0
    assert after(queued(next_try=ahead), now).state == "STARTED"
    assert after(started(at=ahead, process="none"), now).cause == "its driver did not begin"
    assert next_actions([queued(crashed_at=ahead)], now, paused_since=ahead).starts


def test_a_pause_lasts_a_minute_after_a_crash_of_a_sweep_that_was_stopped_since() -> None:
    rows = [queued("a", crashed_at=1_000.0)]
    assert not next_actions(rows, 1_002.0 + PAUSE_SECONDS - 1, paused_since=1_002.0).starts
    assert next_actions(rows, 1_002.0 + PAUSE_SECONDS, paused_since=1_002.0).starts


@pytest.mark.parametrize(
    ("probe", "goes_on", "starts"),
    [
        (started("a", at=1_062.0, is_driven=True, reported_at=1_070.0), True, ["b", "c"]),
        (started("a", at=1_062.0, code=0, sweep=sweep("COMPLETE")), True, ["b", "c"]),
        (started("a", at=900.0, is_driven=True, reported_at=1_070.0), False, ["b"]),
        (started("a", at=1_062.0, code=1), False, []),
    ],
)
def test_a_pause_ends_when_a_driver_of_the_pause_reports(
    probe: Situation, goes_on: bool, starts: list[str]
) -> None:
    """A driver that runs since before the pause shows nothing about new ones."""
    rows = [probe, crashed("b", 1_001.0), crashed("c", 1_002.0)]
    actions = next_actions(rows, 1_080.0, paused_since=1_002.0)
    assert (actions.paused_since is None) == goes_on
    assert [start.sweep_id for start in actions.starts] == starts


def test_the_oldest_start_first_two_at_a_time() -> None:
    """After a boot all drivers are gone."""
    rows = [queued(name, at=at) for name, at in [("c", 3.0), ("a", 1.0), ("b", 2.0)]]
    assert [start.sweep_id for start in next_actions(rows, NOW).starts] == ["a", "b"]
    rows[1:] = [started("a", at=NOW), started("b", at=NOW, is_driven=True)]
    assert [start.sweep_id for start in next_actions(rows, NOW).starts] == ["c"], "b is not starting any more"


def test_the_owner_with_the_fewest_drivers_is_next() -> None:
    ada = [queued(f"ada-{number}", at=float(number)) for number in range(3)]
    rows = [*ada, queued("bob-0", owner="bob", at=9.0)]
    assert [start.sweep_id for start in next_actions(rows, NOW).starts] == ["ada-0", "bob-0"]


def test_no_more_drivers_than_allowed() -> None:
    rows = [started(str(number), is_driven=True) for number in range(3)] + [queued("next")]
    assert not next_actions(rows, NOW, drivers_at_once=3).starts
    assert next_actions(rows, NOW, drivers_at_once=4).starts


TIMES = st.floats(0.0, 2_000.0)
SUBMISSIONS = st.fixed_dictionaries(
    {
        "state": st.sampled_from(["QUEUED", "STARTED", "PARKED"]),
        "owner": st.sampled_from(["ada", "bob"]),
        "at": TIMES,
        "next_try": TIMES,
        "starts": st.integers(0, 9),
        "started_at": st.none() | TIMES,
        "code": st.none() | st.sampled_from([0, 1, 2, 3, 4, 6, -9]),
        "tries": st.integers(0, 9),
        "crashes": st.integers(0, 4),
        "crashed_at": st.none() | TIMES,
    }
)
SEEN = st.fixed_dictionaries(
    {
        "is_driven": st.booleans(),
        "process": st.sampled_from(["none", "alive", "dead", "elsewhere"]),
        "stopped_by": st.none() | st.just("node"),
        "reported_at": TIMES,
        "sweep": st.none() | st.sampled_from(["RUNNING", "INTERRUPTED", "COMPLETE", "FAILED"]).map(sweep),
    }
)


@given(st.lists(st.tuples(SUBMISSIONS, SEEN), max_size=8), TIMES, st.none() | TIMES, st.integers(1, 9))
def test_what_holds_in_every_situation(
    rows: list[tuple[dict[str, Any], dict[str, Any]]], now: float, paused_since: float | None, most: int
) -> None:
    """No sweep is started that is driven, stopped, parked or waiting, and never too many."""
    situations = [
        Situation(submission(str(number), **own), **seen) for number, (own, seen) in enumerate(rows)
    ]
    by_id = {entry.submission.sweep_id: entry for entry in situations}
    actions = next_actions(situations, now, paused_since, drivers_at_once=most)
    changed = [transition.submission.sweep_id for transition in actions.transitions]
    assert len(changed) == len(set(changed))
    for start in actions.starts:
        entry = by_id[start.sweep_id]
        assert start.state == "QUEUED"
        assert not entry.is_driven
        assert entry.stopped_by is None
        assert not 0.0 < start.next_try - now <= 1.2 * LONGEST_BACKOFF_SECONDS
        assert start.sweep_id not in changed
    assert len({start.sweep_id for start in actions.starts}) == len(actions.starts) <= STARTING_AT_ONCE
    if actions.starts:
        driven = sum(entry.is_driven for entry in situations)
        assert driven + len(actions.starts) <= most
    if actions.paused_since is not None:
        assert len(actions.starts) <= 1
    for transition in actions.transitions:
        entry = by_id[transition.submission.sweep_id]
        assert not entry.is_driven, "what a living driver does is left to it"
        left = replace(transition.submission, **transition.columns)
        assert left.state in {"QUEUED", "PARKED", "ENDED"}
        assert (left.state == "PARKED") <= (left.crashes >= MOST_CRASHES)
        if left.state == "QUEUED":
            assert now <= left.next_try <= now + 1.2 * LONGEST_BACKOFF_SECONDS
            assert transition_of(replace(entry, submission=left), now) is None, "a transition is not repeated"
