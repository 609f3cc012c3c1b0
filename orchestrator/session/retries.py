"""Whether a failed attempt is followed by another: a decision from its cause and the trial's past."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.ledger.records import AttemptRecord

UNCHARGED = frozenset({"interrupted", "node lost", "driver lost", "disk full"})
"""Causes that say nothing about the trial: re-issued at once and without limit."""

ALLOWED = {
    "worker lost": 3,
    "engine lost": 3,
    "store lost": 3,
    "damaged checkpoint": 3,
    "out of memory": 2,
    "hung": 1,
    "error": 1,
}
"""How often a cause is retried; one that is not named (non-finite, bad data) could only fail again."""

BACKOFF_SECONDS = 2.0
BACKOFF_CAP_SECONDS = 60.0


def wait_before_retry(cause: str, past: Sequence[AttemptRecord]) -> float | None:
    """Return the seconds to wait before the next attempt, or None if there shall be none.

    Args:
        cause: of the attempt that failed now.
        past: the trial's earlier attempts, that one not among them.
    """
    if cause in UNCHARGED:
        return 0.0
    charged = [each.cause for each in past if each.cause in ALLOWED]
    if charged.count(cause) >= ALLOWED.get(cause, 0):
        return None
    return float(min(BACKOFF_SECONDS * 2 ** len(charged), BACKOFF_CAP_SECONDS))
