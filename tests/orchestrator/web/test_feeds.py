"""Server-sent events: one query for all watchers, resumption, and shutdown with open streams."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api import user_admin
from orchestrator.errors import NoDatabase
from orchestrator.web import event_routes
from orchestrator.web.app_state import AppState
from orchestrator.web.event_routes import MOST_SWEEPS
from orchestrator.web.feeds import KEPT_EVENTS, PING, WOKEN_AT_ONCE, Feed, Feeds
from orchestrator.web.read_cache import ReadCache
from orchestrator.web.server import Listening, answering
from tests import sweeps
from tests.orchestrator.web.server import QUEUED, Client


class Source:
    """Entries that a test changes, and how often they were read."""

    def __init__(self, **entries: object) -> None:
        self.entries, self.readings = dict(entries), 0

    def read(self) -> dict[str, object]:
        self.readings += 1
        return dict(self.entries)


async def take(feed: Feed, count: int, last_id: str | None = None) -> list[str]:
    async with aclosing(feed.watch(last_id)) as events:
        return [(await anext(events)).decode() for _ in range(count)]


PARTS = ("sweep", "running", "reported_at")


def last_id(message: str) -> str:
    return message.partition("\n")[0].removeprefix("id: ")


def test_a_watcher_receives_everything_and_then_changes() -> None:
    async def run() -> None:
        source = Source(a=1, b=2)
        feed = Feed(source.read, poll_seconds=0.01)
        async with aclosing(feed.watch(None)) as events:
            assert b'event: resync\ndata: {"a":1,"b":2}\n\n' in await anext(events)
            source.entries = {"a": 1, "b": 3, "c": 4}
            assert b'event: change\ndata: {"b":3,"c":4}\n\n' in await anext(events)
            del source.entries["c"]
            assert b'data: {"c":null}' in await anext(events)
        assert feed.watchers == 0

    asyncio.run(run())


def test_a_thousand_watchers_are_served_by_one_reading() -> None:
    async def run() -> None:
        source = Source(a=1)
        feed = Feed(source.read, poll_seconds=3600.0)
        received = await asyncio.gather(*(take(feed, 1) for _ in range(1000)))
        assert {message for [message] in received} == {received[0][0]}
        assert source.readings == 1

    asyncio.run(run())


def test_a_change_for_many_watchers_holds_nothing_else_up() -> None:
    """Few watchers are woken between two turns of the event loop, so that requests are answered."""

    async def run() -> None:
        source = Source(a=0)
        feed = Feed(source.read, poll_seconds=0.01)
        told = most = 0

        async def watch() -> None:
            nonlocal told
            async with aclosing(feed.watch(None)) as events:
                await anext(events)
                started.release()
                await anext(events)
                told += 1

        async def turn() -> None:
            nonlocal most
            while True:
                before = told
                await asyncio.sleep(0)
                most = max(most, told - before)

        started = asyncio.Semaphore(0)
        watchers = [asyncio.create_task(watch()) for _ in range(4 * WOKEN_AT_ONCE)]
        for _ in watchers:
            await started.acquire()
        turning = asyncio.create_task(turn())
        source.entries = {"a": 1}
        await asyncio.wait_for(asyncio.gather(*watchers), 30)
        turning.cancel()
        assert told == 4 * WOKEN_AT_ONCE
        assert 0 < most <= WOKEN_AT_ONCE

    asyncio.run(run())


def test_a_watcher_that_comes_back_receives_what_it_missed() -> None:
    async def run() -> None:
        source = Source(a=0)
        feed = Feed(source.read, poll_seconds=0.001)
        async with aclosing(feed.watch(None)) as events:
            first = last_id((await anext(events)).decode())
            for value in (1, 2):
                source.entries["a"] = value
                await anext(events)
            missed = await take(feed, 2, first)
            assert [message.partition("data: ")[2] for message in missed] == ['{"a":1}\n\n', '{"a":2}\n\n']
            for value in range(3, KEPT_EVENTS + 4):
                source.entries["a"] = value
                await anext(events)
            assert "event: resync" in (await take(feed, 1, first))[0], "the gap is too long"
        assert "event: resync" in (await take(feed, 1, "other-1"))[0], "another server sent the event"

    asyncio.run(run())


def test_silence_is_filled_and_a_revoked_watcher_is_dropped() -> None:
    async def run() -> None:
        admitted = [True, True, False]
        feed = Feed(Source(a=1).read, ping_seconds=0.01)
        received = [message async for message in feed.watch(None, lambda: admitted.pop(0))]
        assert [message for message in received if b"resync" not in message][-1:] == [PING]

    asyncio.run(run())


def test_a_revoked_watcher_receives_no_further_change() -> None:
    """A busy feed sends no pings, so a check before pings alone would leave the stream open."""

    async def run() -> None:
        source, is_active = Source(a=0), True
        feed = Feed(source.read, poll_seconds=0.001)
        async with aclosing(feed.watch(None, lambda: is_active)) as events:
            await anext(events)
            is_active = False
            source.entries["a"] = 1
            assert await anext(events, None) is None

    asyncio.run(run())


def test_a_reading_that_fails_does_not_end_the_feed(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        source = Source(a=0)
        failures: list[Exception] = [
            ZeroDivisionError("a defect"),
            NoDatabase("ledger", "must answer", "no", ""),
        ]

        def read() -> dict[str, object]:
            if source.entries["a"] == 1 and failures:
                raise failures.pop(0)
            return source.read()

        feed = Feed(read, poll_seconds=0.001)
        async with aclosing(feed.watch(None)) as events:
            await anext(events)
            source.entries["a"] = 1
            assert b'data: {"a":1}' in await asyncio.wait_for(anext(events), 5.0)
        assert not failures

    asyncio.run(run())
    assert "a defect" in caplog.text, "the log of the service has its traceback"


def test_a_change_of_the_ledger_reaches_every_watcher(client: Client) -> None:
    with (
        client.events("/events", "vera") as everything,
        client.events(f"/sweeps/{QUEUED}/events", "bob") as one,
    ):
        first = next(everything)
        assert first.kind == "resync"
        assert {QUEUED, sweeps.SWEEP_ID, "queue"} == set(first.data)
        assert next(one).data["sweep"]["state"] == "QUEUED"
        client.send("PATCH", f"/api/v1/sweeps/{QUEUED}", "ada", body={"priority_class": "idle"})
        changed = next(everything)
        assert changed.kind == "change"
        assert changed.data["queue"][0]["priority_class"] == "idle"
    with client.events("/events", "vera", first.id) as again:
        assert next(again) == changed


def test_the_streams_of_a_user_are_limited(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_routes, "MOST_STREAMS", 2)
    with client.events("/events", "bob") as first, client.events("/events", "bob") as second:
        assert {next(first).kind, next(second).kind} == {"resync"}
        assert client.send("GET", "/api/v1/events", "bob").status == 429
        with client.events("/events", "vera") as others:
            assert next(others).kind == "resync"
    deadline = time.monotonic() + 20.0
    while client.send("GET", "/api/v1/events", "bob").status == 429:
        assert time.monotonic() < deadline, "the places of closed ones are free again"
        client.send("PATCH", f"/api/v1/sweeps/{QUEUED}", "ada", body={"weight": 1 + time.monotonic() % 1})
        time.sleep(0.5)


def test_one_stream_tells_the_changes_of_several_sweeps(client: Client) -> None:
    chosen = f"sweep={QUEUED}&sweep={sweeps.SWEEP_ID}&sweep=nothing"
    with client.events(f"/events?listed=false&{chosen}", "vera") as events:
        parts = {f"{sweep}/{part}" for sweep in (QUEUED, sweeps.SWEEP_ID) for part in PARTS}
        assert next(events).data.keys() == parts, "the one that does not exist has none"
        client.send("PATCH", f"/api/v1/sweeps/{QUEUED}", "ada", body={"priority_class": "idle"})
        changed = next(events).data
        assert changed.keys() == {f"{QUEUED}/sweep"}
        assert changed[f"{QUEUED}/sweep"]["priority_class"] == "idle"
    with client.events(f"/events?{chosen}", "vera") as events:
        assert next(events).data.keys() == parts | {QUEUED, sweeps.SWEEP_ID, "queue"}


def test_what_is_asked_for_after_an_event_is_as_new_as_the_event(client: Client) -> None:
    """Otherwise a page that reads at once would show the state before the event."""
    site = AppState(client.workspace, cache=ReadCache(time.monotonic, fresh=3600.0))
    paths = ["", "/live", "/trials?limit=1000", "/trials/30", "/curves"]

    def seen(reader: Client) -> list[bytes]:
        path = f"/api/v1/sweeps/{sweeps.SWEEP_ID}"
        return [reader.send("GET", f"{path}{part}", "vera").body for part in paths]

    with answering(site, Listening(0)) as address, client.workspace.ledger() as ledger:
        reader = replace(client, address=address)
        before = seen(reader)
        record = sweeps.trial(30, "RUNNING", value=None, best_step=None, step=0, attempts=0, finished_at=None)
        writer = sweeps.writer_of(ledger)
        writer.add_trial(record)
        attempt = writer.start_attempt(record.key)
        writer.record_report(attempt.id, 40, {"val/accuracy": 0.5})
        assert seen(reader)[:1] == before[:1], "the snapshots from before would answer for an hour"
        with reader.events(f"/sweeps/{sweeps.SWEEP_ID}/events", "vera") as events:
            assert [trial["step"] for trial in next(events).data["running"]] == [40]
            after = seen(reader)
    assert [one == other for one, other in zip(before, after, strict=True)] == [False] * len(paths)


def test_snapshots_are_dropped_only_by_a_change_of_what_they_are_about() -> None:
    made: list[str] = []
    snapshots, version = ReadCache(lambda: 0.0), 1

    def get(about: str) -> None:
        snapshots.get(("live", about), lambda: made.append(about), about=about)

    def announce() -> None:
        snapshots.get("entries of a", lambda: version, fresh=0.0, announces="a")

    announce()
    for _ in range(2):
        get("a")
        get("b")
        announce()
    assert made == ["a", "b"], "nothing has changed"
    version = 2
    announce()
    get("a")
    get("b")
    assert made == ["a", "b", "a"]


def test_a_stream_of_too_many_sweeps_is_refused(client: Client) -> None:
    chosen = "&".join(f"sweep={number}" for number in range(MOST_SWEEPS + 1))
    assert client.send("GET", f"/api/v1/events?{chosen}", "vera").status == 422


@pytest.mark.slow
def test_a_service_with_an_open_stream_ends_at_once(tmp_path: Path) -> None:
    """An event stream never ends by itself; uvicorn would wait for it without limit."""
    root = sweeps.filled(tmp_path / "mlruns").root
    _, token = user_admin.add("vera", "viewer", root=root)
    words = ["-m", "orchestrator.sweep", "serve", "--http", "0", "--root", str(root)]
    with subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = line.split()[5].removesuffix("/api/v1;")
        client = Client(address, None, {"vera": token})  # type: ignore[arg-type]
        with client.events("/events", "vera") as events:
            next(events)
            assert "serves" in process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            assert list(events) == [], "the stream is ended in order"
        assert process.wait(30) == 0
        assert "Traceback" not in process.stdout.read()


def test_feeds_whose_server_has_ended_already_are_closed() -> None:
    """The server may have ended before its streams are closed."""

    async def watched() -> Feeds:
        feeds = Feeds()
        feeds.get("all", Source(a=1).read)
        return feeds

    asyncio.run(watched()).close()
