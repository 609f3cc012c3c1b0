"""Routes of server-sent events: changes of all sweeps, or of one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from orchestrator.api.local import trial_row
from orchestrator.ledger.people.user_records import User
from orchestrator.web.access import SignedIn
from orchestrator.web.app_state import App, AppState
from orchestrator.web.feeds import Read
from orchestrator.web.http_errors import TooManyRequests
from orchestrator.web.sweep_routes import SweepId, all_queued, all_sweeps, show_sweep

ROUTER = APIRouter()

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=64)]

LISTED = 1_000
"""Number of sweeps, the newest, in the events of all sweeps."""

MOST_STREAMS = 1_100
"""Largest number of open streams of a user, so that connections are left for others."""

MOST_SWEEPS = 50
"""Largest number of sweeps whose own events are in one stream."""


@ROUTER.get("/events", response_class=StreamingResponse)
async def watch_all(
    app: App,
    user: SignedIn,
    last_id: LastEventId = None,
    listed: Annotated[bool, Query(description="Include changes of the list and the queue.")] = True,
    sweep: Annotated[
        Sequence[str], Query(max_length=MOST_SWEEPS, description="Sweeps whose own events are included.")
    ] = (),
) -> StreamingResponse:
    """Stream changes of the sweep list and the queue, as server-sent events.

    The data of an event is an object: each sweep under its ID, and the queue under `queue`; null means
    removed. For each `sweep`, the events of `/sweeps/ID/events` follow under `ID/sweep`, `ID/running` and
    `ID/reported_at`, so that a browser, which limits its connections to a server, needs one stream for all
    tabs. An unknown sweep has no entries.
    """
    chosen = tuple(sorted(set(sweep)))

    def read() -> dict[str, Any]:
        own = {
            f"{sweep_id}/{name}": entry
            for sweep_id in chosen
            if sweep_id in app.owners()
            for name, entry in _entries(app, sweep_id).items()
        }
        return {**list_entries(app), **own} if listed else own

    return _stream(app, user, last_id, ("all", listed, chosen), read)


@ROUTER.get("/sweeps/{sweep_id}/events", response_class=StreamingResponse)
async def watch_sweep(
    app: App, user: SignedIn, sweep_id: SweepId, last_id: LastEventId = None
) -> StreamingResponse:
    """Stream changes of a sweep as server-sent events.

    The data of an event is an object with `sweep`, `running` (running trials) and `reported_at` (time of the
    last report).
    """
    return _stream(app, user, last_id, ("sweep", sweep_id), lambda: _entries(app, sweep_id))


def list_entries(app: AppState) -> dict[str, Any]:
    """Return the newest sweeps by ID, and the queue."""
    rows = {row.id: asdict(row) for row in all_sweeps(app)[-LISTED:]}
    return {"queue": [asdict(entry) for entry in all_queued(app)], **rows}


def _entries(app: AppState, sweep_id: str) -> dict[str, Any]:
    """Return the entries of a sweep; answers read after an event are at least as new as the event."""

    def read() -> dict[str, Any]:
        shown = asdict(show_sweep(app, sweep_id))
        with app.ledger() as ledger:
            reported_at = ledger.last_report_at(sweep_id)
            running = ledger.trials_in_state(sweep_id, "RUNNING")
        return {
            "sweep": {name: value for name, value in shown.items() if name != "text"},
            "running": [asdict(trial_row(trial)) for trial in running],
            "reported_at": reported_at,
        }

    return app.cache.get(("entries", sweep_id), read, announces=sweep_id)


def _stream(app: AppState, user: User, last_id: str | None, key: Hashable, read: Read) -> StreamingResponse:
    def is_admitted() -> bool:
        return user.is_active(time.time()) and user in app.users().values()

    async def events() -> AsyncIterator[bytes]:
        app.streams[user.name] += 1
        try:
            async with aclosing(app.feeds.get(key, read).watch(last_id, is_admitted)) as watched:
                async for event in watched:
                    yield event
        finally:
            app.streams[user.name] -= 1

    if app.streams[user.name] >= MOST_STREAMS:
        must = f"must not exceed {MOST_STREAMS:,} open streams a user"
        raise TooManyRequests("events", must, "", "Close other streams.")
    return StreamingResponse(events(), media_type="text/event-stream")
