"""Feeds: what changes in the ledger, read once a second for all watchers, as server-sent events.

A feed reads entries by name and sends those that have changed. The id of an event is that of the feed and a
number. A watcher that comes back with the id of its last event receives the later ones; if they are no longer
kept, or if it has none, it first receives an event `resync` with all entries.

Source: WHATWG, HTML, section 9.2, Server-sent events.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool

from orchestrator.errors import Refusal

_log = logging.getLogger(__name__)

Entries = Mapping[str, Any]
Read = Callable[[], Entries]

POLL_SECONDS = 1.0
"""Time between two readings, and so between two messages to a watcher."""

PING_SECONDS = 15.0
"""Silence after which a comment is sent, so that proxies keep the connection and a dead one is noticed."""

KEPT_EVENTS = 100
"""Number of events of a feed that a watcher can catch up on."""

MOST_FEEDS = 256
"""Number of feeds that are kept; of those without watchers, the one that was not used longest is dropped."""

WOKEN_AT_ONCE = 50
"""Watchers that are told of a change together; an answer to a request waits for no more of them."""

PAUSE_SECONDS = 0.01
"""Time before the next ones are told: a thousand watchers have a change within a third of a second."""

PING = b": ping\n\n"


class Feed:
    """The events of one reading of the ledger, for any number of watchers in one event loop.

    Args:
        read: returns all entries; called in a thread while the feed has watchers.
        poll_seconds: time between two readings.
        ping_seconds: silence after which a comment is sent.
    """

    def __init__(
        self, read: Read, *, poll_seconds: float = POLL_SECONDS, ping_seconds: float = PING_SECONDS
    ) -> None:
        self._read, self._poll_seconds, self._ping_seconds = read, poll_seconds, ping_seconds
        self._id = secrets.token_hex(4)
        self._number = 0
        self._entries: Entries = {}
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT_EVENTS)
        self._awaited: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def watch(
        self, last_id: str | None, is_admitted: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[bytes, None]:
        """Yield events, encoded, until the watcher leaves or is no longer admitted.

        Args:
            last_id: id of the last event that the watcher received, or None.
            is_admitted: asked before every change and at every silence; ends the stream by returning False.
        """
        changed = asyncio.Event()
        self._awaited.add(changed)
        if self._task is None:
            self._task = asyncio.create_task(self._poll())
        try:
            seen = self._number_of(last_id)
            while not self._is_closed:
                changed.clear()
                if self._number and seen != self._number:
                    if not is_admitted():
                        return
                    messages, seen = self._after(seen), self._number
                    for message in messages:
                        yield message
                try:
                    async with asyncio.timeout(self._ping_seconds):
                        await changed.wait()
                except TimeoutError:
                    if not is_admitted():
                        return
                    yield PING
        finally:
            self._awaited.discard(changed)
            if not self.watchers:
                self._task.cancel()
                self._task = None

    def close(self) -> None:
        """End the streams of all watchers."""
        self._is_closed = True
        for watcher in self._awaited:
            watcher.set()

    @property
    def watchers(self) -> int:
        """Return the number of watchers."""
        return len(self._awaited)

    def _number_of(self, last_id: str | None) -> int | None:
        feed, _, number = (last_id or "").partition("-")
        return int(number) if feed == self._id and number.isdigit() else None

    def _after(self, seen: int | None) -> list[bytes]:
        """Return what a watcher has missed since an event, or everything if that is not kept."""
        if seen == self._number:
            return []
        later = [message for number, message in self._kept if seen is not None and number > seen]
        if seen is None or len(later) != self._number - seen:
            return [self._message("resync", self._entries)]
        return later

    async def _poll(self) -> None:
        while True:
            try:
                entries = await run_in_threadpool(self._read)
            except Refusal:  # the ledger's server is away: watchers keep what they have
                entries = self._entries
            except Exception:  # noqa: BLE001 - a defect must not end the streams of everybody for good
                _log.exception("a reading for the watchers has failed")
                entries = self._entries
            if self._is_news(entries):
                await self._tell()
            await asyncio.sleep(self._poll_seconds)

    async def _tell(self) -> None:
        """Wake the watchers, a few at a time: all at once would keep the event loop from every request."""
        waiting = list(self._awaited)
        for first in range(0, len(waiting), WOKEN_AT_ONCE):
            if first:
                await asyncio.sleep(PAUSE_SECONDS)
            for watcher in waiting[first : first + WOKEN_AT_ONCE]:
                watcher.set()

    def _is_news(self, entries: Entries) -> bool:
        """Keep entries for the watchers; return True if there is something to tell them."""
        changes = {name: entry for name, entry in entries.items() if self._entries.get(name) != entry}
        changes |= dict.fromkeys(self._entries.keys() - entries.keys())
        self._entries = entries
        if not changes and self._number:
            return False
        self._number += 1
        self._kept.append((self._number, self._message("change", changes)))
        return True

    def _message(self, event: str, entries: Entries) -> bytes:
        data = json.dumps(entries, separators=(",", ":"))
        return f"id: {self._id}-{self._number}\nevent: {event}\ndata: {data}\n\n".encode()


class Feeds:
    """The feeds of one server, by key; used in one event loop."""

    def __init__(self) -> None:
        self._feeds: OrderedDict[Hashable, Feed] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self, key: Hashable, read: Read) -> Feed:
        """Return the feed of a key, and make it first if there is none."""
        self._loop = asyncio.get_running_loop()
        if key not in self._feeds:
            self._feeds[key] = Feed(read)
        self._feeds.move_to_end(key)
        idle = [known for known, feed in self._feeds.items() if not feed.watchers and known != key]
        for known in idle[: max(0, len(self._feeds) - MOST_FEEDS)]:
            del self._feeds[known]
        return self._feeds[key]

    def close(self) -> None:
        """End all streams, which would go on for ever; called from another thread than the event loop's."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended, and every stream with it
                for feed in list(self._feeds.values()):
                    self._loop.call_soon_threadsafe(feed.close)
