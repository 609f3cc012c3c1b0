"""The routes that send events: the changes of all sweeps, or of one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from orchestrator.ledger.people.users import User
from orchestrator.web import documents, reading
from orchestrator.web.access import SignedIn
from orchestrator.web.feeds import Read
from orchestrator.web.problems import TooMany
from orchestrator.web.reading import SweepId
from orchestrator.web.site import Here, Site

ROUTER = APIRouter()

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=64)]

LISTED = 1_000
"""Number of sweeps, the newest, whose changes the events of all sweeps tell."""

MOST_STREAMS = 1_100
"""Most streams of one user at once, so that those of others have places too."""

MOST_SWEEPS = 50
"""Most sweeps whose own events one stream tells."""


@ROUTER.get("/events", response_class=StreamingResponse)
async def watch_all(
    site: Here,
    user: SignedIn,
    last_id: LastEventId = None,
    listed: Annotated[bool, Query(description="Whether to tell changes of the list and the queue.")] = True,
    sweep: Annotated[
        Sequence[str], Query(max_length=MOST_SWEEPS, description="Sweeps whose own events to tell too.")
    ] = (),
) -> StreamingResponse:
    """Send the changes of the list of sweeps and of the queue, as server-sent events.

    The data of an event is an object: each sweep under its id, and the queue under `queue`; null is removed.
    Of each `sweep`, what `/sweeps/ID/events` tells follows under `ID/sweep`, `ID/running` and
    `ID/reported_at`, so that a browser, which opens few connections to a server, needs one stream for all
    its tabs. A sweep that does not exist has no entries.
    """
    chosen = tuple(sorted(set(sweep)))

    def read() -> dict[str, Any]:
        own = {
            f"{sweep_id}/{name}": entry
            for sweep_id in chosen
            if sweep_id in site.known()
            for name, entry in _entries(site, sweep_id).items()
        }
        return {**list_entries(site), **own} if listed else own

    return _stream(site, user, last_id, ("all", listed, chosen), read)


@ROUTER.get("/sweeps/{sweep_id}/events", response_class=StreamingResponse)
async def watch_sweep(
    site: Here, user: SignedIn, sweep_id: SweepId, last_id: LastEventId = None
) -> StreamingResponse:
    """Send the changes of a sweep as server-sent events.

    The data of an event is an object with `sweep`, `running` (its running trials) and `reported_at` (time of
    the last report).
    """
    return _stream(site, user, last_id, ("sweep", sweep_id), lambda: _entries(site, sweep_id))


def list_entries(site: Site) -> dict[str, Any]:
    """Return the newest sweeps by their ids, and the queue."""
    rows = reading.sweep_rows(site)[-LISTED:]
    return {"queue": reading.queue_document(site)["queue"], **{row["id"]: row for row in rows}}


def _entries(site: Site, sweep_id: str) -> dict[str, Any]:
    """Return what the events of a sweep tell; whatever is asked for after an event is at least as new."""

    def read() -> dict[str, Any]:
        shown = reading.sweep_document(site, sweep_id)
        with site.ledger() as ledger:
            reported_at = ledger.last_report_at(sweep_id)
            running = ledger.trials_in_state(sweep_id, "RUNNING")
        return {
            "sweep": {name: value for name, value in shown.items() if name != "text"},
            "running": [documents.trial(trial) for trial in running],
            "reported_at": reported_at,
        }

    return site.snapshots.get(("entries", sweep_id), read, announces=sweep_id)


def _stream(site: Site, user: User, last_id: str | None, key: Hashable, read: Read) -> StreamingResponse:
    def is_admitted() -> bool:
        return user.is_active(time.time()) and user in site.users().values()

    async def events() -> AsyncIterator[bytes]:
        site.streams[user.name] += 1
        try:
            async with aclosing(site.feeds.get(key, read).watch(last_id, is_admitted)) as watched:
                async for event in watched:
                    yield event
        finally:
            site.streams[user.name] -= 1

    if site.streams[user.name] >= MOST_STREAMS:
        must, got = f"must be at most {MOST_STREAMS:,} streams of a user at once", "one more"
        raise TooMany("events", must, got, "Close others.")
    return StreamingResponse(events(), media_type="text/event-stream")
