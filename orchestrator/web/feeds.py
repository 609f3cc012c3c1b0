"""Event feeds: ledger changes, polled once a second for all watchers, as server-sent events.

A feed polls named entries and sends those that have changed. The ID of an event is the feed's ID and a
sequence number. A watcher that reconnects with `Last-Event-ID` receives the later events; without it, or if
the feed has dropped these events, it first receives a `resync` event with all entries.

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
"""Polling interval, and so the smallest time between two events of a watcher."""

PING_SECONDS = 15.0
"""Keep-alive interval: a comment keeps proxies from closing the connection, and detects dead ones."""

KEPT_EVENTS = 100
"""Number of past events of a feed that are kept for reconnecting watchers."""

MOST_FEEDS = 256
"""Number of feeds that are kept; the least recently used one without watchers is evicted."""

WOKEN_AT_ONCE = 50
"""Number of watchers that are woken together, so that requests do not wait for more of them."""

PAUSE_SECONDS = 0.01
"""Pause between two such groups: a thousand watchers are woken within a third of a second."""

PING = b": ping\n\n"


class Feed:
    """Events of one query, for any number of watchers in one event loop.

    Args:
        read: Function that returns all entries; called in a thread while the feed has watchers.
        poll_seconds: Polling interval.
        ping_seconds: Keep-alive interval.
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
        """Yield encoded events until the watcher disconnects or is refused.

        Args:
            last_id: ID of the last event that the watcher received, or None.
            is_admitted: Function called before each event and ping; False ends the stream.
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
        """Number of watchers."""
        return len(self._awaited)

    def _number_of(self, last_id: str | None) -> int | None:
        feed, _, number = (last_id or "").partition("-")
        return int(number) if feed == self._id and number.isdigit() else None

    def _after(self, seen: int | None) -> list[bytes]:
        """Return the events after an event, or a `resync` if some were dropped."""
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
            except Refusal:  # the database does not answer: watchers keep their entries
                entries = self._entries
            except Exception:  # noqa: BLE001 - a bug must not end the streams of all users
                _log.exception("an event feed could not be read")
                entries = self._entries
            if self._has_changed(entries):
                await self._wake()
            await asyncio.sleep(self._poll_seconds)

    async def _wake(self) -> None:
        """Wake the watchers in groups: waking all at once would block the event loop for requests."""
        waiting = list(self._awaited)
        for first in range(0, len(waiting), WOKEN_AT_ONCE):
            if first:
                await asyncio.sleep(PAUSE_SECONDS)
            for watcher in waiting[first : first + WOKEN_AT_ONCE]:
                watcher.set()

    def _has_changed(self, entries: Entries) -> bool:
        """Store the entries, and an event if they differ from the previous ones; return True then."""
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
    """Event feeds of one server by key; used in one event loop."""

    def __init__(self) -> None:
        self._feeds: OrderedDict[Hashable, Feed] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self, key: Hashable, read: Read) -> Feed:
        """Return the feed of a key, creating it if necessary."""
        self._loop = asyncio.get_running_loop()
        if key not in self._feeds:
            self._feeds[key] = Feed(read)
        self._feeds.move_to_end(key)
        idle = [known for known, feed in self._feeds.items() if not feed.watchers and known != key]
        for known in idle[: max(0, len(self._feeds) - MOST_FEEDS)]:
            del self._feeds[known]
        return self._feeds[key]

    def close(self) -> None:
        """End all streams, which would never end; called from another thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended with all streams
                for feed in list(self._feeds.values()):
                    self._loop.call_soon_threadsafe(feed.close)
