"""When the supervision last completed a round: what tells a service that works from one that only answers."""

from __future__ import annotations

import time
from collections.abc import Callable

MOST_SILENT_SECONDS = 60.0
"""Longest time between two rounds of a healthy service; on an idle machine there is one a second."""


class Rounds:
    """The clock of the last completed round; safe to share between threads.

    Args:
        clock: returns seconds of a clock that is never set.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._completed_at = clock()

    def complete(self) -> None:
        """Note that a round has been completed."""
        self._completed_at = self._clock()

    @property
    def silent_seconds(self) -> float:
        """Return the seconds since the last completed round, or since the service began."""
        return self._clock() - self._completed_at

    @property
    def are_late(self) -> bool:
        """Return True if the last round was completed longer ago than `MOST_SILENT_SECONDS`."""
        return self.silent_seconds > MOST_SILENT_SECONDS
