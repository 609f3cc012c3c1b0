"""Settings of a sweep in the queue and its stop requests, in both databases."""

from __future__ import annotations

import pytest

from orchestrator.errors import BadInput, StaleRevision
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import (
    QueueSettings,
    ask_to_stop,
    asked_to_stop,
    change_settings,
    resume,
    settings,
)
from orchestrator.ledger.queue.submissions import ROOM, Submission, SubmissionRequest, SubmissionWriter
from orchestrator.sharing.pool_rows import UNIT
from tests.orchestrator.ledger.examples import writer


def submit(ledger: Ledger) -> Submission:
    order = SubmissionRequest("ada", {"name": "a"}, "", {}, None, "c0ffee")
    return submissions.submit(ledger, order, lambda is_known: "a-1")[0]


def submission(ledger: Ledger) -> Submission:
    entry = submissions.submission(ledger, "a-1")
    assert entry is not None
    return entry


def service(ledger: Ledger) -> SubmissionWriter:
    return SubmissionWriter(ledger, writer(ledger, "serve").token)


def test_a_pause_takes_the_place_of_a_request_of_the_service(ledger: Ledger) -> None:
    """The service queues a sweep again that it has preempted, but not one that a user has stopped."""
    submit(ledger)
    service(ledger).ask_for_room("a-1")
    assert not settings(ledger, "a-1").paused
    ask_to_stop(ledger, "a-1")
    assert settings(ledger, "a-1") == QueueSettings(paused=True)
    assert asked_to_stop(ledger, "a-1") not in {None, ROOM}


def test_what_is_not_named_stays(ledger: Ledger) -> None:
    submit(ledger)
    first = change_settings(ledger, "a-1", priority_class="idle", weight=2 * UNIT)
    second = change_settings(ledger, "a-1", weight=3 * UNIT, revisions={first.revision})
    assert second == settings(ledger, "a-1") == QueueSettings("idle", 3 * UNIT)
    ask_to_stop(ledger, "a-1")
    with pytest.raises(StaleRevision):
        change_settings(ledger, "a-1", weight=UNIT, revisions={second.revision})
    assert change_settings(ledger, "a-1", weight=UNIT) == QueueSettings("idle", UNIT, paused=True)


def test_a_paused_sweep_that_has_left_is_queued_as_if_it_had_never_crashed(ledger: Ledger) -> None:
    seen = submit(ledger)
    ask_to_stop(ledger, "a-1")
    ended = {"state": "ENDED", "code": 4, "cause": "stopped", "tries": 2, "crashes": 1, "next_try": 1e12}
    assert service(ledger).change(seen, **ended)
    assert resume(ledger, "a-1") == QueueSettings()
    entry = submission(ledger)
    assert (entry.state, entry.next_try, entry.tries, entry.crashes, entry.cause) == ("QUEUED", 0, 0, 0, None)
    assert asked_to_stop(ledger, "a-1") is None


def test_a_service_that_has_read_the_request_does_not_end_a_sweep_that_was_resumed_since(
    ledger: Ledger,
) -> None:
    submit(ledger)
    ask_to_stop(ledger, "a-1")
    seen = submission(ledger)
    resume(ledger, "a-1")
    assert not service(ledger).change(seen, state="ENDED", code=4)
    assert submission(ledger).state == "QUEUED"


def test_what_cannot_be_resumed(ledger: Ledger) -> None:
    ask_to_stop(ledger, "a-1")
    with pytest.raises(BadInput, match="cannot be resumed, because it was not submitted"):
        resume(ledger, "a-1")
    submit(ledger)
    with pytest.raises(BadInput, match="is not stopped"):
        resume(ledger, "a-1")
