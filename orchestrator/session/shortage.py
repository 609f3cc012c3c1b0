"""The want of a node: that nothing runs, why, and since when."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.ledger.ledger import Ledger
from orchestrator.session.running import Running

SLOW_START = 120.0
"""Seconds that an attempt may take to start where nothing else runs, before it is said to wait for a node."""


def any_begins(running: Iterable[Running], now: float) -> bool:
    """Tell whether an attempt runs, or is about to: a worker takes a while to start."""
    return any(run.started or now - run.reported_at <= SLOW_START for run in running)


class Shortage:
    """Says in the ledger that a sweep waits for a node, and that it no longer does.

    Attributes:
        reason: why nothing runs now, or None.
    """

    def __init__(self, ledger: Ledger, sweep_id: str) -> None:
        self._ledger, self._sweep_id = ledger, sweep_id
        self.reason: str | None = None
        self._since = 0.0

    def note(self, reason: str | None, now: float) -> float:
        """Take notice of why nothing runs, or that something does; return the seconds that it has lasted."""
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
