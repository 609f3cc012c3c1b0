"""Submissions in both databases: what people, drivers and the service write."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count

import pytest

from orchestrator.errors import BadInput, Busy, OverQuota
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool.claims import set_owner
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import ask_to_stop, asked_to_stop, reason_of, resume
from orchestrator.ledger.queue.submissions import ROOM, Submission, SubmissionRequest, SubmissionWriter
from orchestrator.sharing.pool_rows import MOST_SWEEPS
from orchestrator.system import ClockSetting
from tests.orchestrator.ledger.examples import writer

DRIVER = Holder(pid=7, host="here", place="boot", start=1, since=2.0)


def order(key: str | None = None, **document: object) -> SubmissionRequest:
    return SubmissionRequest(
        "ada", document or {"name": "a"}, "task: copying\n", {"wait": 3.0}, key, "c0ffee"
    )


def submit(ledger: Ledger, sweep_id: str = "a-1", *, key: str | None = None) -> Submission:
    return submissions.submit(ledger, order(key), lambda is_known: sweep_id)[0]


def another(is_known: Callable[[str], bool]) -> str:
    names = (f"a-{number}" for number in count())
    return next(name for name in names if not is_known(name))


def service(ledger: Ledger) -> SubmissionWriter:
    return SubmissionWriter(ledger, writer(ledger, "serve").token)


def test_a_submission_is_read_as_it_was_written(ledger: Ledger) -> None:
    submitted, added = submissions.submit(ledger, order("key"), another)
    assert added
    assert (submitted.sweep_id, submitted.owner, submitted.state) == ("a-0", "ada", "QUEUED")
    assert submissions.submission(ledger, "a-0") == submitted
    assert submissions.submissions(ledger) == [submitted]


def test_the_same_key_submits_once(ledger: Ledger) -> None:
    first, _ = submissions.submit(ledger, order("key"), another)
    assert submissions.submit(ledger, order("key"), another) == (first, False)
    assert len(submissions.submissions(ledger)) == 1


def test_a_key_of_another_sweep_is_refused(ledger: Ledger) -> None:
    submissions.submit(ledger, order("key"), another)
    with pytest.raises(BadInput, match="is already the key of"):
        submissions.submit(ledger, order("key", name="b"), another)


def test_a_submission_that_waits_or_runs_is_not_queued_again(ledger: Ledger) -> None:
    first = submit(ledger)
    assert submissions.submit(ledger, order(), lambda is_known: "a-1") == (first, False)


def test_a_stop_request_of_a_person_is_withdrawn_only_on_purpose(ledger: Ledger) -> None:
    first = submit(ledger)
    ask_to_stop(ledger, "a-1")
    with pytest.raises(Busy, match=r"has a pending stop request from .*`resume a-1`"):
        submit(ledger)
    assert asked_to_stop(ledger, "a-1") is not None
    again = submissions.submit(ledger, order(), lambda is_known: "a-1", withdraw=True)
    assert again == (replace(first, revision=first.revision + 1), False)
    assert asked_to_stop(ledger, "a-1") is None


def test_the_service_does_not_end_a_sweep_for_a_request_that_was_withdrawn(ledger: Ledger) -> None:
    """It has read the request and decided, and a person withdraws it before the service writes."""
    submit(ledger)
    ask_to_stop(ledger, "a-1")
    seen = submissions.submission(ledger, "a-1")
    assert seen is not None
    submissions.submit(ledger, order(), lambda is_known: "a-1", withdraw=True)
    assert not service(ledger).change(seen, state="ENDED")
    submissions.submit(ledger, order(), lambda is_known: "a-1", withdraw=True)
    seen = submissions.submission(ledger, "a-1")
    assert seen is not None
    assert seen.state == "QUEUED"
    submissions.submit(ledger, order(), lambda is_known: "a-1", withdraw=True)
    assert service(ledger).change(seen, state="ENDED"), "without a request, nothing has changed"


def test_the_place_that_the_service_asks_for_is_no_stop_request_of_a_person(ledger: Ledger) -> None:
    first = submit(ledger)
    service(ledger).ask_for_room("a-1")
    assert submissions.submit(ledger, order(), lambda is_known: "a-1") == (first, False)


def test_an_ended_submission_is_queued_again_without_its_stop_request(ledger: Ledger) -> None:
    first = submit(ledger)
    assert service(ledger).change(first, state="ENDED", crashes=3)
    ask_to_stop(ledger, "a-1")
    queued = submit(ledger)
    assert (queued.state, queued.crashes) == ("QUEUED", 0)
    assert queued.starts > first.starts, "an earlier driver would write into this submission"
    assert asked_to_stop(ledger, "a-1") is None


@pytest.mark.parametrize("writes", ["the driver", "the service"])
def test_the_last_words_of_a_driver_may_be_any_bytes(ledger: Ledger, writes: str) -> None:
    """PostgreSQL stores neither NUL nor lone surrogates: the service would end at every poll."""
    seen, last = submit(ledger), "killed at \0 and \udcff"
    if writes == "the driver":
        assert submissions.end(ledger, "a-1", seen.starts, -9, last)
    else:
        assert service(ledger).change(seen, cause=last)
    ended = submissions.submission(ledger, "a-1")
    assert ended is not None
    assert ended.cause == "killed at \\0 and \\udcff"


def test_only_the_newest_driver_of_a_submission_begins(ledger: Ledger) -> None:
    """Two drivers were started, the second because the first took long: the first one leaves."""
    own = service(ledger)
    assert own.change(submit(ledger), state="STARTED", starts=1)
    seen = submissions.submission(ledger, "a-1")
    assert seen is not None
    assert own.change(seen, starts=2)
    with pytest.raises(Busy):
        submissions.begin(ledger, "a-1", 1, DRIVER)
    submissions.begin(ledger, "a-1", 2, DRIVER)
    with pytest.raises(Busy):
        submissions.begin(ledger, "a-1", 2, DRIVER)


def test_the_first_end_of_a_start_stands(ledger: Ledger) -> None:
    service(ledger).change(submit(ledger), state="STARTED", starts=1)
    assert not submissions.end(ledger, "a-1", 2, 1, "another start")
    assert submissions.end(ledger, "a-1", 1, 2, "bad data")
    assert not submissions.end(ledger, "a-1", 1, -9, "killed")
    ended = submissions.submission(ledger, "a-1")
    assert ended is not None
    assert (ended.code, ended.cause) == (2, "bad data")


def test_a_decision_on_an_outdated_view_changes_nothing(ledger: Ledger) -> None:
    """The service decides to start a driver again; meanwhile the slow one begins."""
    own, seen = service(ledger), submit(ledger)
    own.change(seen, state="STARTED", starts=1)
    seen = submissions.submission(ledger, "a-1")
    assert seen is not None
    submissions.begin(ledger, "a-1", 1, DRIVER)
    assert not own.change(seen, starts=2)


def test_the_service_asks_for_the_place_of_a_driver_until_the_sweep_is_queued_again(ledger: Ledger) -> None:
    own, seen = service(ledger), submit(ledger)
    for _ in range(2):
        own.ask_for_room("a-1")
        assert asked_to_stop(ledger, "a-1") == ROOM
    assert own.change(seen, state="QUEUED")
    assert asked_to_stop(ledger, "a-1") is None


def test_a_person_who_stops_a_sweep_is_not_overruled_by_the_service(ledger: Ledger) -> None:
    own, seen = service(ledger), submit(ledger)
    own.ask_for_room("a-1")
    ask_to_stop(ledger, "a-1")
    own.ask_for_room("a-1")
    assert own.change(seen, state="QUEUED")
    asker = asked_to_stop(ledger, "a-1")
    assert asker not in {None, ROOM}
    assert reason_of(str(asker)) == f"stopped by `stop` on {asker}"


def test_a_service_without_its_lease_writes_nothing(ledger: Ledger) -> None:
    seen, earlier = submit(ledger), service(ledger)
    service(ledger)
    pause = partial(earlier.pause, 1.0, ClockSetting.here())
    for write in (lambda: earlier.change(seen, state="ENDED"), pause, earlier.go_on):
        with pytest.raises(Busy):
            write()
    assert submissions.submission(ledger, "a-1") == seen
    assert submissions.paused_since(ledger, ClockSetting.here()) is None


def test_only_a_parked_submission_is_released(ledger: Ledger) -> None:
    seen = submit(ledger)
    with pytest.raises(BadInput, match="is not parked"):
        submissions.release(ledger, "a-1")
    service(ledger).change(seen, state="PARKED", tries=7, crashes=5, next_try=1e12, cause="it crashed")
    released = submissions.release(ledger, "a-1")
    assert released == submissions.submission(ledger, "a-1")
    assert (released.state, released.tries, released.crashes, released.cause) == ("QUEUED", 0, 0, None)
    assert released.next_try == 0.0


def test_a_pause_is_kept_until_it_ends(ledger: Ledger) -> None:
    own, seen, clock = service(ledger), submit(ledger), ClockSetting("boot", 1_000.0)
    own.change(seen, crashed_at=5.0)
    own.pause(5.0, clock)
    assert submissions.paused_since(ledger, clock) == 5.0
    later = replace(clock, booted_at=clock.booted_at + 8.0)
    assert submissions.paused_since(ledger, later) == pytest.approx(13.0)
    own.go_on()
    assert submissions.paused_since(ledger, ClockSetting.here()) is None
    after = submissions.submission(ledger, "a-1")
    assert after is not None
    assert after.crashed_at is None


def test_a_quota_limits_the_sweeps_of_an_owner_that_wait_or_run(ledger: Ledger) -> None:
    """What is queued already is not queued again, and what has ended or is parked does not count."""
    set_owner(ledger, "ada", most_sweeps=2)
    first, second = submit(ledger, "a-1"), submit(ledger, "a-2")
    with pytest.raises(
        OverQuota, match=r"owner ada may have at most 2 sweeps that wait or run \(got 2 without a-3"
    ):
        submit(ledger, "a-3")
    assert submissions.submission(ledger, "a-3") is None
    assert submit(ledger, "a-2") == second
    other = SubmissionRequest("bob", {"name": "b"}, "", {}, None, "c0ffee")
    assert submissions.submit(ledger, other, lambda is_known: "b-1")[1], "the quota is that of ada alone"
    service(ledger).change(first, state="PARKED")
    submit(ledger, "a-3")
    with pytest.raises(OverQuota, match="without a-1"):
        submissions.release(ledger, "a-1")
    service(ledger).change(second, state="ENDED", code=0)
    assert submissions.release(ledger, "a-1").state == "QUEUED"


def test_without_a_quota_of_its_own_an_owner_has_the_default(ledger: Ledger) -> None:
    for number in range(MOST_SWEEPS):
        submit(ledger, f"a-{number}")
    with pytest.raises(OverQuota, match=f"may have at most {MOST_SWEEPS} sweeps"):
        submit(ledger, "a-more")
    set_owner(ledger, "ada", most_sweeps=None)
    submit(ledger, "a-more")


def test_a_quota_holds_where_a_paused_sweep_is_resumed(ledger: Ledger) -> None:
    first = submit(ledger, "a-1")
    ask_to_stop(ledger, "a-1")
    service(ledger).change(first, state="ENDED", code=4)
    set_owner(ledger, "ada", most_sweeps=1)
    submit(ledger, "a-2")
    with pytest.raises(OverQuota):
        resume(ledger, "a-1")
    assert asked_to_stop(ledger, "a-1") is not None, "it stays paused"
    set_owner(ledger, "ada", most_sweeps=None)
    resume(ledger, "a-1")


def test_of_two_submissions_at_once_a_quota_admits_one(ledger: Ledger) -> None:
    set_owner(ledger, "ada", most_sweeps=1)

    def attempt(sweep_id: str) -> bool:
        try:
            submit(ledger, sweep_id)
        except OverQuota:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        admitted = list(pool.map(attempt, [f"a-{number}" for number in range(4)]))
    assert sum(admitted) == 1
