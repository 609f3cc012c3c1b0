"""Trials that wait for their next attempt, each until its time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


class Waiting:
    """The keys of trials that wait; at first those that an earlier driver has left unfinished."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._due = [(0.0, key) for key in keys]
        heapq.heapify(self._due)

    def __len__(self) -> int:
        return len(self._due)

    def in_turn(self) -> list[str]:
        """Return the keys in the order of their turns."""
        return [key for _, key in sorted(self._due)]

    def add(self, key: str, due: float) -> None:
        """Let a trial wait until a time."""
        heapq.heappush(self._due, (due, key))

    def pop(self, now: float) -> str | None:
        """Take the trial whose turn it is, or None if it is nobody's yet."""
        return heapq.heappop(self._due)[1] if self._due and self._due[0][0] <= now else None

    def remove(self, key: str) -> None:
        """Take a trial before its turn."""
        self._due = [each for each in self._due if each[1] != key]
        heapq.heapify(self._due)
