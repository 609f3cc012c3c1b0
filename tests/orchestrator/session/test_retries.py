"""What is retried, how often, and after which wait."""

from __future__ import annotations

import pytest

from orchestrator.ledger.records import AttemptRecord
from orchestrator.session.retries import ALLOWED, BACKOFF_CAP_SECONDS, UNCHARGED, wait_before_retry


def past(*causes: str) -> list[AttemptRecord]:
    return [
        AttemptRecord(f"s-0.{n}", "s-0", n, "FAILED", cause, None, 0.0, 1.0)
        for n, cause in enumerate(causes, 1)
    ]


@pytest.mark.parametrize("cause", sorted(UNCHARGED))
def test_what_says_nothing_about_the_trial_is_never_charged(cause: str) -> None:
    assert wait_before_retry(cause, past(*[cause] * 100)) == 0.0


@pytest.mark.parametrize("cause", sorted(ALLOWED))
def test_each_cause_has_its_own_number_of_retries(cause: str) -> None:
    allowed = ALLOWED[cause]
    assert wait_before_retry(cause, past(*[cause] * (allowed - 1))) is not None
    assert wait_before_retry(cause, past(*[cause] * allowed)) is None


@pytest.mark.parametrize("cause", ["non-finite", "bad data"])
def test_what_could_only_fail_again_is_not_retried(cause: str) -> None:
    assert wait_before_retry(cause, []) is None


def test_the_wait_doubles_up_to_a_cap() -> None:
    waits = [wait_before_retry("error", past(*["worker lost"] * n)) for n in range(8)]
    assert waits[:4] == [2.0, 4.0, 8.0, 16.0]
    assert waits[-1] == BACKOFF_CAP_SECONDS


def test_interruptions_do_not_lengthen_the_wait() -> None:
    assert wait_before_retry("error", past("interrupted", "node lost", "interrupted")) == 2.0
