"""The invariants of submissions: what the rows of the service and their backup satisfy at any moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from orchestrator.errors import Damaged
from orchestrator.ledger.integrity import verify_submissions
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue.submissions import Submission, SubmissionState
from orchestrator.upkeep.check import Finding


def check_submissions(ledger: Ledger, submissions: Sequence[Submission]) -> list[Finding]:
    """Return every violated invariant of submissions, and the faults of the backup of all submissions.

    Args:
        ledger: holds the submissions.
        submissions: those to be checked.
    """
    try:
        faults = verify_submissions(ledger, repair_backup=False)
    except Damaged as damage:
        return [Finding(damage.where, f"{damage.must}, got {damage.got}")]
    findings = [Finding("submissions", fault) for fault in faults]
    return findings + [finding for submission in submissions for finding in _violations(submission)]


def _violations(submission: Submission) -> Iterator[Finding]:
    where = f"submission {submission.sweep_id}"
    if submission.state not in get_args(SubmissionState):
        yield Finding(where, f"its state must be a known one, got {submission.state}")
    if submission.state == "STARTED" and submission.started_at is None:
        yield Finding(where, "a STARTED submission has a time of its start, got none")
    if submission.state == "PARKED" and not submission.cause:
        yield Finding(where, "a PARKED submission has a cause, got none")
    if submission.state == "ENDED" and submission.code is None:
        yield Finding(where, "an ENDED submission has an exit code, got none")
    if submission.crashes > submission.tries:
        yield Finding(
            where, f"only a driver that was started can crash, got {submission.crashes} of {submission.tries}"
        )
