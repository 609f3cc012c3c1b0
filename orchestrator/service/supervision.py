"""Decisions of the service, as pure functions of the rows of the ledger, the leases and the clock.

Only the lease determines which process drives a sweep, so starting a second driver is harmless. Between two
polls, the service keeps only the times when it first saw the newest reports.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import Exit
from orchestrator.ledger.queue.queue_settings import reason_of
from orchestrator.ledger.queue.submissions import ROOM, Submission
from orchestrator.service.start_order import (
    DRIVERS_AT_ONCE,
    JITTER,
    LONGEST_BACKOFF_SECONDS,
    Situation,
    leaving,
    next_starts,
)

BACKOFF_SECONDS = 5.0
"""Backoff after the first end of a driver without a report; it doubles up to `LONGEST_BACKOFF_SECONDS`."""

MOST_CRASHES = 5
"""Number of crashes without a report in between after which a submission is parked."""

BEGIN_SECONDS = 60.0
"""Time limit for a started driver to begin, or to take its lease."""

PAUSE_CRASHES, PAUSE_SECONDS = 3, 60.0
"""Starts are paused if this many sweeps crash within this time, because the machine is assumed to be at
fault."""


_VERDICTS = frozenset({Exit.COMPLETE, Exit.SOME_FAILED, Exit.BAD_INPUT})
"""Exit codes that are the result of a sweep; other codes only describe the end of the driver."""


@dataclass(frozen=True)
class Transition:
    """New values of a submission.

    Attributes:
        submission: Submission as it was read.
        columns: New values by column.
    """

    submission: Submission
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class Actions:
    """The next actions of the service.

    Attributes:
        transitions: Transitions of submissions.
        starts: Submissions whose drivers the service starts, in this order.
        paused_since: Time when the service paused all starts because several sweeps crashed at once, or None.
        leaving: Sweeps whose drivers the service preempts; they are then queued again.
    """

    transitions: Sequence[Transition]
    starts: Sequence[Submission]
    paused_since: float | None
    leaving: Sequence[str] = ()


def next_actions(
    situations: Sequence[Situation],
    now: float,
    paused_since: float | None = None,
    *,
    drivers_at_once: int = DRIVERS_AT_ONCE,
) -> Actions:
    """Decide the next actions of the service.

    Args:
        situations: State of every submission that has not ended.
        now: Seconds since the epoch.
        paused_since: Time when the service paused all starts, or None.
        drivers_at_once: Maximum number of drivers.
    """
    transitions = [transition for situation in situations if (transition := transition_of(situation, now))]
    crashes = _crash_times(situations, transitions)
    paused_since = _paused(situations, crashes, paused_since)
    if paused_since is None:
        starts = next_starts(situations, now, drivers_at_once)
        return Actions(transitions, starts, None, leaving(situations, now, drivers_at_once))
    probes = [entry for entry in situations if _is_probe(entry, paused_since)]
    # `crashes` lacks the last crash if its sweep has been stopped since.
    is_due = _is_over(max([paused_since, *crashes]), PAUSE_SECONDS, now)
    starts = next_starts(situations, now, drivers_at_once)[:1] if is_due and not probes else []
    return Actions(transitions, starts, paused_since)


def _is_probe(situation: Situation, paused_since: float) -> bool:
    """Return True if a driver that was started during the pause is starting or running."""
    is_active = situation.is_driven or situation.is_starting
    return is_active and (situation.submission.started_at or 0.0) > paused_since


def transition_of(situation: Situation, now: float) -> Transition | None:
    """Return the transition of a submission whose driver has ended or whose sweep was stopped, else None."""
    if situation.is_driven:
        return None
    match situation.submission.state:
        case "QUEUED" if situation.is_stopped:
            return _stopped(situation)
        case "PARKED" if situation.is_concluded:
            return _ended(situation)
        case "STARTED" if _has_ended(situation, now):
            return _after_driver(situation, now)
    return None


def _has_ended(situation: Situation, now: float) -> bool:
    """Return True if the newest driver has ended, or has not begun within `BEGIN_SECONDS`."""
    if situation.submission.code is not None or situation.process == "dead":
        return True
    if situation.process == "alive":
        return False
    return _is_over(situation.submission.started_at or 0.0, BEGIN_SECONDS, now)


def _is_over(since: float, seconds: float, now: float) -> bool:
    """Return True if the time has passed since a moment, or the clock was set back before it."""
    return not 0.0 <= now - since < seconds


def _after_driver(situation: Situation, now: float) -> Transition:
    """Return the transition of a submission whose driver has ended."""
    if situation.is_concluded:
        return _ended(situation)
    if situation.is_stopped:
        return _stopped(situation)
    submission = situation.submission
    if situation.is_finished and submission.code == Exit.COMPLETE:  # no work was left
        return _ended(situation)
    if situation.makes_room and submission.code in {None, Exit.COMPLETE, Exit.RESUMABLE}:
        return _queued(submission, now, reason_of(ROOM))
    match submission.code:
        case Exit.SOME_FAILED | Exit.BAD_INPUT:
            return _ended(situation)
        case Exit.BUSY:
            return _queued(submission, now + BACKOFF_SECONDS, "another process drove it")
        case Exit.RESUMABLE | Exit.COMPLETE:  # with COMPLETE, it obeyed a request that was withdrawn since
            return _interrupted(situation, now)
        case None if situation.process == "elsewhere":
            return _queued(submission, now, "the machine of its driver has ended")
        case None if situation.process == "none":
            return _queued(submission, now, "its driver did not begin")
    return _crashed(situation, now)


def _ended(situation: Situation) -> Transition:
    """Return the end of a submission, with its driver's exit code, or else a code derived from the sweep."""
    code = situation.submission.code
    if code not in _VERDICTS:
        has_failed = situation.sweep is not None and situation.sweep.state == "FAILED"
        code = Exit.SOME_FAILED if has_failed else Exit.COMPLETE
    return Transition(situation.submission, {"state": "ENDED", "code": int(code)})


def _stopped(situation: Situation) -> Transition:
    columns = {"state": "ENDED", "code": int(Exit.RESUMABLE), "cause": reason_of(str(situation.stopped_by))}
    return Transition(situation.submission, columns)


def _queued(submission: Submission, next_try: float, cause: str | None, **columns: Any) -> Transition:
    return Transition(submission, {"state": "QUEUED", "next_try": next_try, "cause": cause, **columns})


def _interrupted(situation: Situation, now: float) -> Transition:
    """Return the next try of a sweep whose driver saved its trials and ended with code 4."""
    tries = _tries(situation)
    cause = situation.sweep.reason if situation.sweep else situation.submission.cause
    crashes = 0 if situation.has_reported else situation.submission.crashes
    wait = now + backoff(situation.submission.sweep_id, tries)
    return _queued(situation.submission, wait, cause, tries=tries, crashes=crashes)


def _crashed(situation: Situation, now: float) -> Transition:
    """Return the next try of a sweep whose driver has crashed, or park it."""
    submission, tries = situation.submission, _tries(situation)
    crashes = 1 if situation.has_reported else submission.crashes + 1
    cause = submission.cause or "its driver vanished"
    counts = {"tries": tries, "crashes": crashes, "crashed_at": now}
    if crashes >= MOST_CRASHES:
        return Transition(submission, {"state": "PARKED", "cause": cause, **counts})
    return _queued(submission, now + backoff(submission.sweep_id, tries), cause, **counts)


def _tries(situation: Situation) -> int:
    return 1 if situation.has_reported else situation.submission.tries + 1


def backoff(sweep_id: str, tries: int) -> float:
    """Return the backoff in seconds after a number of ends without a report; it is deterministic."""
    doubled = min(BACKOFF_SECONDS * 2.0 ** min(tries - 1, 30), LONGEST_BACKOFF_SECONDS)
    return doubled * random.Random(f"{sweep_id}-{tries}").uniform(1.0 - JITTER, 1.0 + JITTER)


def _crash_times(situations: Sequence[Situation], transitions: Sequence[Transition]) -> list[float]:
    """Return the time of each sweep's latest crash, the newest first."""
    times = {entry.submission.sweep_id: entry.submission.crashed_at for entry in situations}
    times |= {
        transition.submission.sweep_id: transition.columns["crashed_at"]
        for transition in transitions
        if "crashed_at" in transition.columns
    }
    return sorted((time for time in times.values() if time is not None), reverse=True)


def _paused(
    situations: Sequence[Situation], crashes: Sequence[float], paused_since: float | None
) -> float | None:
    """Return the time when starts were paused because several sweeps crashed at once, or None."""
    if paused_since is not None:
        return None if any(_has_succeeded(entry, paused_since) for entry in situations) else paused_since
    is_sudden = len(crashes) >= PAUSE_CRASHES and crashes[0] - crashes[PAUSE_CRASHES - 1] <= PAUSE_SECONDS
    return crashes[0] if is_sudden else None


def _has_succeeded(situation: Situation, paused_since: float) -> bool:
    """Return True if a driver that was started during the pause has reported or has completed its sweep."""
    submission = situation.submission
    if submission.started_at is None or submission.started_at <= paused_since:
        return False
    return situation.has_reported or situation.is_concluded or submission.code == Exit.COMPLETE
