"""What the API shows of the ledger, read at most once a second however many requests ask for it.

A page that hears of a change asks for it at once, when a snapshot from before the change may
still be fresh. A reading that tells of changes therefore drops the snapshots of the same subject.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

Result = TypeVar("Result")

FRESH_SECONDS = 1.0
"""Age up to which a snapshot answers a request."""

MOST_SNAPSHOTS = 128
"""Number of snapshots that are kept; the one that was not asked for longest is dropped."""


class _Snapshot:
    def __init__(self, about: str | None) -> None:
        self.about = about
        self.lock = threading.Lock()
        self.made_at: float | None = None
        self.value: Any = None


class Snapshots:
    """Snapshots by key; safe to share between threads.

    Args:
        clock: returns seconds of a clock that never goes back.
        fresh: age in seconds up to which a snapshot answers a request.
    """

    def __init__(self, clock: Callable[[], float], fresh: float = FRESH_SECONDS) -> None:
        self._clock, self._fresh = clock, fresh
        self._snapshots: OrderedDict[Hashable, _Snapshot] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self,
        key: Hashable,
        make: Callable[[], Result],
        *,
        fresh: float | None = None,
        about: str | None = None,
        announces: str | None = None,
    ) -> Result:
        """Return the snapshot of a key, and make it first if there is none or it is too old.

        Of several threads that ask at once, one makes it and the others wait for it.

        Args:
            key: identifies what `make` returns.
            make: reads the ledger; an error that it raises is not kept.
            fresh: age in seconds up to which this snapshot answers, if not that of the others.
            about: id of the sweep whose announced changes drop this snapshot.
            announces: id of the sweep of which this snapshot tells that it has changed: whenever it differs
                from the one before, the snapshots about that sweep are dropped before it is returned.
        """
        with self._lock:
            snapshot = self._snapshots.setdefault(key, _Snapshot(about))
            self._snapshots.move_to_end(key)
            while len(self._snapshots) > MOST_SNAPSHOTS:
                self._snapshots.popitem(last=False)
        with snapshot.lock:
            limit = self._fresh if fresh is None else fresh
            if snapshot.made_at is None or self._clock() - snapshot.made_at >= limit:
                value = make()
                if announces is not None and value != snapshot.value:
                    self._drop(announces)
                snapshot.value = value
                snapshot.made_at = self._clock()
            return cast(Result, snapshot.value)

    def drop(self) -> None:
        """Forget every snapshot, so that a change is seen at once by the user who made it."""
        with self._lock:
            self._snapshots.clear()

    def _drop(self, about: str) -> None:
        """Forget the snapshots about a sweep, also those that are being made: they may lack the change."""
        with self._lock:
            for key in [key for key, snapshot in self._snapshots.items() if snapshot.about == about]:
                del self._snapshots[key]
