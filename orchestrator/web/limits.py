"""How often something may happen, and whose turn it is: allowances that fill up with time, and fair turns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
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


class Turns:
    """Lets several users work at once, but each on one thing at a time; who has waited longest is next.

    What takes long therefore keeps only its own user waiting, as long as fewer than `most` users do that.

    Args:
        most: number of users who may work at once.
        waiting: number of things of one user that may wait besides the one in work.
    """

    def __init__(self, most: int, waiting: int) -> None:
        self._most, self._waiting = most, waiting
        self._changed = threading.Condition()
        self._working: set[str] = set()
        self._queue: list[_Ticket] = []

    @contextmanager
    def turn(self, user: str, timeout: float) -> Iterator[bool]:
        """Wait for a turn of a user, and hold it for the length of a `with` block; yield False without one.

        Args:
            user: whose turn it is to be.
            timeout: longest wait in seconds.
        """
        ticket = _Ticket(user)
        with self._changed:
            before = sum(one.user == user for one in self._queue) + (user in self._working)
            if before > self._waiting:
                granted = False
            else:
                self._queue.append(ticket)
                granted = self._changed.wait_for(lambda: self._next() is ticket, timeout)
                self._queue.remove(ticket)
                if granted:
                    self._working.add(user)
                self._changed.notify_all()
        try:
            yield granted
        finally:
            if granted:
                with self._changed:
                    self._working.remove(user)
                    self._changed.notify_all()

    def _next(self) -> _Ticket | None:
        if len(self._working) >= self._most:
            return None
        return next((one for one in self._queue if one.user not in self._working), None)


@dataclass(frozen=True, eq=False)
class _Ticket:
    user: str
