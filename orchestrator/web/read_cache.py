"""Caches of ledger reads: answers for a second; rows of the sweep list and reports until a sweep changes."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from orchestrator.api import status
from orchestrator.client.statuses import Status
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool import claims
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.sweeps.index import SweepVersion, versions

Result = TypeVar("Result")

FRESH_SECONDS = 1.0
"""Default age up to which a cached answer is returned."""

PATIENCE_SECONDS = 1.0
"""Default wait, from the start of its build, for a report of which an older one exists."""

RENEWALS = 2
"""Number of answers that are read at once in the background."""

MOST_ANSWERS = 128
"""Number of cached answers; the least recently used one is evicted."""


PEOPLE = ""
"""What an answer is about that no change of a sweep concerns: users, their sessions, owners of sweeps."""


class _CachedAnswer:
    def __init__(self, about: str | None) -> None:
        self.about = about
        self.lock = threading.Lock()
        self.made_at: float | None = None
        self.version: Hashable = None
        self.value: Any = None
        self.renewal: Future[Any] | None = None


class ReadCache:
    """Thread-safe LRU cache whose entries expire after a second.

    >>> cache = ReadCache(time.monotonic)  # doctest: +SKIP
    >>> cache.get("users", read_users)  # doctest: +SKIP

    A page that receives an event about a sweep reads the sweep at once, when an answer from before the
    change may still be fresh. The read behind the event therefore invalidates the answers about that sweep.

    Args:
        clock: Monotonic clock in seconds.
        fresh: Default age in seconds up to which a cached answer is returned.
    """

    def __init__(self, clock: Callable[[], float], fresh: float = FRESH_SECONDS) -> None:
        self._clock, self._fresh = clock, fresh
        self._answers: OrderedDict[Hashable, _CachedAnswer] = OrderedDict()
        self._lock = threading.Lock()
        self._renewer = ThreadPoolExecutor(RENEWALS, "renewal")

    def get(
        self,
        key: Hashable,
        read: Callable[[], Result],
        *,
        fresh: float | None = None,
        about: str | None = None,
        announces: str | None = None,
        patience: float | None = None,
        version: Callable[[], Hashable] | None = None,
    ) -> Result:
        """Return the cached answer of a key, after reading it if it is missing or too old.

        If several threads need the same answer, one reads it and the others wait. With `patience`, they wait
        no longer than that if there is an older answer, which they get; the read goes on in the background.

        Args:
            key: Key of the answer.
            read: Function that reads the ledger; its errors are not cached.
            fresh: Age in seconds up to which this answer is returned; the default of the cache if None.
            about: ID of the sweep whose announced changes invalidate this answer, or `PEOPLE`.
            announces: ID of the sweep whose changes this answer announces: the cached answers about that
                sweep are invalidated whenever this answer differs from the previous one.
            patience: Longest wait in seconds for a read of which an older answer exists; without a limit if
                None.
            version: Function that returns the version of what is read, in less time than the read takes; an
                answer stays fresh while its version is the same, and None is never the same.
        """
        with self._lock:
            answer = self._answers.setdefault(key, _CachedAnswer(about))
            self._answers.move_to_end(key)
            while len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        limit = self._fresh if fresh is None else fresh

        def is_fresh() -> bool:
            return answer.made_at is not None and self._clock() - answer.made_at < limit

        def current() -> Any:
            with answer.lock:
                if not is_fresh():
                    found = None if version is None else version()
                    if found is None or found != answer.version:
                        value = read()
                        if announces is not None and value != answer.value:
                            self._invalidate(announces)
                        answer.value, answer.version = value, found
                    answer.made_at = self._clock()
                return answer.value

        if patience is None or answer.made_at is None or is_fresh():
            return cast(Result, current())
        with self._lock:
            if answer.renewal is None or answer.renewal.done():
                answer.renewal = self._renewer.submit(current)
            renewal = answer.renewal
        try:
            return cast(Result, renewal.result(patience))
        except TimeoutError:
            return cast(Result, answer.value)

    def lasts(self, key: Hashable, seconds: float) -> bool:
        """Return True if the cached answer of a key stays fresh for some seconds, unless it is removed."""
        answer = self._answers.get(key)
        made_at = None if answer is None else answer.made_at
        return made_at is not None and self._clock() + seconds - made_at < self._fresh

    def clear(self, sweep_id: str | None = None) -> None:
        """Remove the answers that a user's change may concern, so that users see their own changes at once.

        Args:
            sweep_id: ID of the changed sweep: answers about another sweep and about `PEOPLE` stay. If None,
                every answer is removed.
        """
        if sweep_id is None:
            with self._lock:
                self._answers.clear()
        else:
            self._invalidate(None, sweep_id)

    def _invalidate(self, *about: str | None) -> None:
        """Remove the answers about some sweeps, including unfinished reads, which may lack the change."""
        with self._lock:
            for key in [key for key, answer in self._answers.items() if answer.about in about]:
                del self._answers[key]


class KeptReports:
    """Reports of sweeps as files: each is built again after its sweep has changed.

    A large report takes longer than a reader waits. An older file, which names the time of its build, is then
    returned instead, and the next reader gets the new one.

    Args:
        patience: Longest wait in seconds, from the start of a build, if there is an older file.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self, patience: float = PATIENCE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._patience, self._clock = patience, clock
        self._lock, self._builder = threading.Lock(), ThreadPoolExecutor(1, "report")
        self._built: dict[str, Hashable] = {}
        self._building: dict[str, tuple[Future[Path], float]] = {}

    def get(self, sweep_id: str, version: Hashable, kept: Path, write: Callable[[], Path]) -> Path:
        """Return the file of a report.

        Args:
            sweep_id: ID of the sweep.
            version: Version of the sweep, which differs after every change.
            kept: File of the last report, which may not exist.
            write: Function that builds the report and returns its file.
        """

        def build() -> Path:
            file = write()
            self._built[sweep_id] = version  # a change since then has another version
            return file

        with self._lock:
            if self._built.get(sweep_id) == version and kept.exists():
                return kept
            building, began = self._building.get(sweep_id, (None, 0.0))
            if building is None or building.done():
                building, began = self._builder.submit(build), self._clock()
                self._building[sweep_id] = building, began
        left = max(0.0, began + self._patience - self._clock())
        try:
            return building.result(left if kept.exists() else None)
        except TimeoutError:
            return kept


@dataclass(frozen=True)
class _KeptRow:
    """Row of the sweep list.

    Attributes:
        version: Version of the sweep before it was read.
        priority_class: Priority class of the sweep.
        at: Time before it was read, by the clock of the cache.
        found: The row.
    """

    version: SweepVersion
    priority_class: str
    at: float
    found: Status

    def is_valid(self, version: SweepVersion, priority_class: str, since: float) -> bool:
        """Return True if the sweep would be read as this row; with a driver, if it was read after `since`."""
        if (version, priority_class) != (self.version, self.priority_class):
            return False
        if self.found.driver is None:
            return _is_settled(self.found)
        return version.commits is not None and self.at > since


class SweepListCache:
    """Thread-safe cache of the sweep list of one ledger; only sweeps that may have changed are read again.

    A ledger keeps every sweep, and each open page asks for all of them once a second. One query reads the
    version of each sweep; a sweep that has ended is read once. A sweep with a driver is read after each
    commit, and each second for its time left and for the end of its driver: a change of one sweep does not
    read the others again.

    Args:
        clock: Monotonic clock in seconds.
        fresh: Age in seconds up to which the row of a sweep with a driver is returned without a commit.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, fresh: float = FRESH_SECONDS) -> None:
        self._clock, self._fresh = clock, fresh
        self._kept: dict[str, _KeptRow] = {}
        self._lock = threading.Lock()

    def read(self, ledger: Ledger) -> list[Status]:
        """Return every sweep, the oldest first."""
        with self._lock:
            classes, kept = claims.priority_classes(ledger), {}
            for sweep_id, version in versions(ledger).items():
                priority_class = classes.get(sweep_id, "normal")
                row = self._kept.get(sweep_id)
                began = self._clock()
                if row is None or not row.is_valid(version, priority_class, began - self._fresh):
                    record, submission = ledger.sweep(sweep_id), submissions.submission(ledger, sweep_id)
                    found = status.overview(ledger, record, submission, {sweep_id: priority_class})
                    row = _KeptRow(version, priority_class, began, found)
                kept[sweep_id] = row
            self._kept = kept
            return [row.found for row in kept.values()]

    def forget(self, sweep_id: str) -> None:
        """Read a sweep again the next time, because a user has changed it."""
        with self._lock:
            self._kept.pop(sweep_id, None)


def _is_settled(row: Status) -> bool:
    """Return True if a row stays valid until the version of its sweep changes.

    Without a driver, the rows of a sweep change only after a process has taken its lease. The reason of a
    queued sweep depends on the clock.
    """
    return row.driver is None and row.state != "QUEUED"
