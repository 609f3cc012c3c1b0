"""Token-bucket rate limiter and fair queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MOST_KEYS = 10_000
"""Number of keys above which full buckets are dropped."""


@dataclass
class _Bucket:
    left: float
    at: float


class RateLimit:
    """Thread-safe token bucket by key: a burst of `most` events, refilled at `most` a minute.

    >>> limit = RateLimit(10, time.monotonic)  # doctest: +SKIP
    >>> limit.take("ada")  # doctest: +SKIP
    True

    Args:
        most: Capacity of a bucket.
        clock: Monotonic clock in seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = most, clock
        self._buckets: dict[Hashable, _Bucket] = {}
        self._lock = threading.Lock()

    def take(self, key: Hashable) -> bool:
        """Take a token from the bucket of a key; return False if it is empty."""
        with self._lock:
            if len(self._buckets) > MOST_KEYS:
                self._drop_full_buckets()
            bucket = self._refilled(key)
            self._buckets[key] = bucket
            if bucket.left < 1.0:
                return False
            bucket.left -= 1.0
            return True

    def _refilled(self, key: Hashable) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.get(key, _Bucket(float(self._most), now))
        gained = (now - bucket.at) * self._most / 60.0
        return _Bucket(min(float(self._most), bucket.left + gained), now)

    def _drop_full_buckets(self) -> None:
        refilled = {key: self._refilled(key) for key in self._buckets}
        self._buckets = {key: bucket for key, bucket in refilled.items() if bucket.left < self._most}


class FairQueue:
    """Queue that runs one job of each user at a time; the user who has waited longest is next.

    Slow jobs delay only their own user while fewer than `most` users run jobs.

    Args:
        most: Number of users who may run jobs at once.
        waiting: Number of jobs of a user that may wait while another one runs.
    """

    def __init__(self, most: int, waiting: int) -> None:
        self._most, self._waiting = most, waiting
        self._changed = threading.Condition()
        self._running: set[str] = set()
        self._queue: list[_Ticket] = []

    @contextmanager
    def turn(self, user: str, timeout: float) -> Iterator[bool]:
        """Wait for a turn of a user and hold it for a `with` block; yield False without a turn.

        Args:
            user: Name of the user.
            timeout: Longest wait in seconds.
        """
        ticket = _Ticket(user)
        with self._changed:
            jobs = sum(other.user == user for other in self._queue) + (user in self._running)
            if jobs > self._waiting:
                granted = False
            else:
                self._queue.append(ticket)
                granted = self._changed.wait_for(lambda: self._next() is ticket, timeout)
                self._queue.remove(ticket)
                if granted:
                    self._running.add(user)
                self._changed.notify_all()
        try:
            yield granted
        finally:
            if granted:
                with self._changed:
                    self._running.remove(user)
                    self._changed.notify_all()

    def _next(self) -> _Ticket | None:
        if len(self._running) >= self._most:
            return None
        return next((ticket for ticket in self._queue if ticket.user not in self._running), None)


@dataclass(frozen=True, eq=False)
class _Ticket:
    user: str
