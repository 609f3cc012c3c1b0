"""What ends a sweep or a trial: the budget, failures, retries that are used up, and missing nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.config.sections import BudgetSection
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import FINISHED_TRIAL, AttemptRecord, SweepState, TrialState

HOPELESS_AFTER = 8
"""A sweep stops when all its settled trials, at least so many, have failed: the next would fail too."""

UNCHARGED = frozenset({"interrupted", "node lost", "driver lost", "disk full", "engine lost", "slot lost"})
"""Causes that say nothing about the trial: retried at once and without limit."""

ALLOWED_RETRIES = {
    "worker lost": 3,
    "engine crash": 3,
    "store lost": 3,
    "damaged checkpoint": 3,
    "out of memory": 2,
    "hung": 1,
    "error": 1,
}
"""Retries a trial by cause; a cause that is not listed (`non-finite`, `bad data`) would only occur again."""

BACKOFF_SECONDS = 2.0
BACKOFF_CAP_SECONDS = 60.0

SLOW_START = 120.0
"""Seconds that a worker may take to start before its attempt counts as waiting for a node."""

_HOUR = 3600.0


@dataclass(frozen=True)
class Stop:
    """Why a session launches nothing more.

    Attributes:
        reason: for people.
        state: of the sweep afterwards: INTERRUPTED, PAUSED until a disk has space, or COMPLETE.
    """

    reason: str
    state: SweepState


def hopeless(states: Iterable[TrialState]) -> bool:
    """Return True if at least `HOPELESS_AFTER` trials have settled and all of them have failed."""
    settled = Counter(state for state in states if state in FINISHED_TRIAL)
    return settled["FAILED"] >= HOPELESS_AFTER and settled["FAILED"] == settled.total()


# ------------------------------------------------------------------ budget


@dataclass(frozen=True)
class Spent:
    """Time that attempts have taken.

    Attributes:
        hours: wall-clock hours in which at least one attempt ran; the time between two drivers does not
            count.
        attempt_hours: hours of all attempts, summed; times the GPU share of an attempt they are GPU hours.
    """

    hours: float
    attempt_hours: float


def spent(attempts: Iterable[AttemptRecord], now: float) -> Spent:
    """Add up attempts.

    Args:
        attempts: of a sweep; one without an end is still running.
        now: end of the running attempts, in seconds since the epoch.
    """
    # The clock may have been set back while an attempt ran.
    spans = sorted(
        (attempt.started_at, max(attempt.ended_at or now, attempt.started_at)) for attempt in attempts
    )
    busy, reached = 0.0, float("-inf")
    for start, end in spans:
        busy += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return Spent(busy / _HOUR, sum(end - start for start, end in spans) / _HOUR)


def overspent(budget: BudgetSection, total: Spent, gpu: float) -> str | None:
    """Return a sentence about the part of a budget that is spent, or None if every part has some left.

    Args:
        budget: of the sweep.
        total: time that its attempts have taken.
        gpu: share of a GPU of one attempt.
    """
    if budget.hours is not None and total.hours >= budget.hours:
        return f"the budget of {budget.hours:g} hours is spent"
    if budget.gpu_hours is not None and gpu * total.attempt_hours >= budget.gpu_hours:
        return f"the budget of {budget.gpu_hours:g} GPU hours is spent"
    return None


# ------------------------------------------------------------------ retries


def wait_before_retry(cause: str, past: Sequence[AttemptRecord]) -> float | None:
    """Return the seconds to wait before the next attempt of a trial, or None if it has no retry left.

    Args:
        cause: of the attempt that has failed now.
        past: the trial's earlier attempts, without that one.
    """
    if cause in UNCHARGED:
        return 0.0
    charged = [attempt.cause for attempt in past if attempt.cause in ALLOWED_RETRIES]
    if charged.count(cause) >= ALLOWED_RETRIES.get(cause, 0):
        return None
    return float(min(BACKOFF_SECONDS * 2 ** len(charged), BACKOFF_CAP_SECONDS))


# ------------------------------------------------------------------ missing nodes


class Shortage:
    """Tracks how long a sweep has been waiting for a node, and why; the ledger shows it as WAITING meanwhile.

    Args:
        ledger: of the sweep.
        sweep_id: of the sweep.

    Attributes:
        reason: why no attempt runs now, or None.
    """

    def __init__(self, ledger: Ledger, sweep_id: str) -> None:
        self._ledger, self._sweep_id = ledger, sweep_id
        self.reason: str | None = None
        self._since = 0.0

    def update(self, reason: str | None, now: float) -> float:
        """Record why no attempt runs, or None if one does; return the seconds that this has lasted."""
        before, self.reason = self.reason, reason
        if reason is None:
            if before is not None:
                self._ledger.set_sweep_state(self._sweep_id, "RUNNING")
            return 0.0
        if before is None:
            self._since = now
        if reason != before:
            self._ledger.set_sweep_state(self._sweep_id, "WAITING", reason)
        return now - self._since
