"""How often something may happen: allowances by key that fill up with time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MOST_KEYS = 10_000
"""Number of keys after which those with a full allowance are forgotten."""


@dataclass
class _Allowance:
    left: float
    at: float


class RateLimit:
    """Allows `most` events of a key at once, and then `most` a minute; safe to share between threads.

    Args:
        most: number of events.
        clock: returns seconds of a clock that never goes back.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = most, clock
        self._allowances: dict[Hashable, _Allowance] = {}
        self._lock = threading.Lock()

    def take(self, key: Hashable) -> bool:
        """Count one event of a key; return False if the key has none left."""
        with self._lock:
            if len(self._allowances) > MOST_KEYS:
                self._forget()
            allowance = self._filled(key)
            self._allowances[key] = allowance
            if allowance.left < 1.0:
                return False
            allowance.left -= 1.0
            return True

    def _filled(self, key: Hashable) -> _Allowance:
        now = self._clock()
        known = self._allowances.get(key, _Allowance(float(self._most), now))
        gained = (now - known.at) * self._most / 60.0
        return _Allowance(min(float(self._most), known.left + gained), now)

    def _forget(self) -> None:
        filled = {key: self._filled(key) for key in self._allowances}
        self._allowances = {key: entry for key, entry in filled.items() if entry.left < self._most}
