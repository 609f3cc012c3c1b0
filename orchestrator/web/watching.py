"""The routes that send events: the changes of all sweeps, or of one."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from orchestrator.ledger.users import User
from orchestrator.web import documents, reading
from orchestrator.web.access import SignedIn
from orchestrator.web.feeds import Read
from orchestrator.web.reading import SweepId
from orchestrator.web.site import Here, Site

ROUTER = APIRouter()

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=64)]

LISTED = 1_000
"""Number of sweeps, the newest, whose changes the events of all sweeps tell."""


@ROUTER.get("/events", response_class=StreamingResponse)
async def watch_all(site: Here, user: SignedIn, last_id: LastEventId = None) -> StreamingResponse:
    """Send the changes of the list of sweeps and of the queue, as server-sent events.

    The data of an event is an object: each sweep under its id, and the queue under `queue`; null is removed.
    """

    def read() -> dict[str, Any]:
        rows = reading.sweep_rows(site)[-LISTED:]
        return {"queue": reading.queue_document(site)["queue"], **{row["id"]: row for row in rows}}

    return _stream(site, user, last_id, "all", read)


@ROUTER.get("/sweeps/{sweep_id}/events", response_class=StreamingResponse)
async def watch_sweep(
    site: Here, user: SignedIn, sweep_id: SweepId, last_id: LastEventId = None
) -> StreamingResponse:
    """Send the changes of a sweep as server-sent events.

    The data of an event is an object with `sweep`, `running` (its running trials) and `reported_at` (time of
    the last report).
    """

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

    return _stream(site, user, last_id, ("sweep", sweep_id), read)


def _stream(site: Site, user: User, last_id: str | None, key: Hashable, read: Read) -> StreamingResponse:
    def is_admitted() -> bool:
        return user.is_active(time.time()) and user in site.users().values()

    feed = site.feeds.get(key, read)
    return StreamingResponse(feed.watch(last_id, is_admitted), media_type="text/event-stream")
