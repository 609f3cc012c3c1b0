"""The routes that change something: submissions, sweeps, quotas, users.

Each change is written to the audit log in its own transaction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from orchestrator.api import priorities, serving, user_admin
from orchestrator.api.local_sweep import Sweep
from orchestrator.errors import BadInput, StaleRevision
from orchestrator.ledger.people import audit
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.idempotency import RequestKey
from orchestrator.ledger.people.users import User
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.settings import QueueSettings
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP
from orchestrator.sharing.rows import UNIT
from orchestrator.web import models
from orchestrator.web.access import SignedIn
from orchestrator.web.bodies import Extend, NewUser, Priority, Quota, Submit
from orchestrator.web.conditional import tags
from orchestrator.web.once import Key, once
from orchestrator.web.paging import MOST_WHOLE
from orchestrator.web.problems import Conflict, NotAllowed, NotFound, TooMany
from orchestrator.web.reading import Document, SweepId
from orchestrator.web.site import SUBMISSIONS_A_MINUTE, Here, Site
from orchestrator.web.submitted import check_own, sweep_of
from orchestrator.web.yaml_bodies import FileRoute, described

ROUTER = APIRouter()
FILES = APIRouter(route_class=FileRoute)

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match", max_length=1_000, description="The `revision` of the sweep that was read, or `*`."
    ),
]


@FILES.post("/sweeps", status_code=202, response_model=models.Submitted, openapi_extra=described("new"))
def submit(
    site: Here,
    user: SignedIn,
    body: Submit,
    key: Key = None,
) -> Document:
    """Submit a search-space file; repeating it with the same `Idempotency-Key` gives the first answer.

    With `application/yaml`, the body is the file itself.
    """

    def submitted(request: RequestKey | None) -> Document:
        _allow_submission(site, user)
        asked = Asked(user.name, "submit", body.name, {"new": body.new}, request)
        sweep = sweep_of(site, body.sent, user.name)
        only_own = user.role != "admin"
        return _submitted(site, sweep, user.name, new=body.new, only_own=only_own, asked=asked)

    return once(site, user, key, "submit", body, submitted)


@ROUTER.post("/sweeps/{sweep_id}/stop", status_code=202, response_model=models.Stopped)
def stop(site: Here, user: SignedIn, sweep_id: SweepId) -> Document:
    """Ask a sweep to save every trial and end."""
    selected = _found(site, sweep_id)
    try:
        driver = selected.stop(asked=Asked(user.name, "stop", sweep_id))
    except BadInput as refusal:
        raise _conflict(refusal) from None
    site.snapshots.drop()
    return {"id": sweep_id, "driver": str(driver) if driver else None}


@ROUTER.post("/sweeps/{sweep_id}/extend", status_code=202, response_model=models.Submitted)
def extend(site: Here, user: SignedIn, sweep_id: SweepId, body: Extend, key: Key = None) -> Document:
    """Go on with a sweep that has ended, with a larger budget.

    Repeating it with the same `Idempotency-Key` gives the first answer.
    """

    def extended(request: RequestKey | None) -> Document:
        _allow_submission(site, user)
        budget = body.model_dump(exclude_none=True)
        asked = Asked(user.name, "extend", sweep_id, budget, request)
        return _again(site, user, _found(site, sweep_id).extend(**budget), asked)

    return once(site, user, key, f"extend {sweep_id}", body, extended)


@ROUTER.post("/sweeps/{sweep_id}/retry", status_code=202, response_model=models.Submitted)
def retry(site: Here, user: SignedIn, sweep_id: SweepId, key: Key = None) -> Document:
    """Run a sweep that was stopped again, or the failed trials of one that is finished.

    Repeating it with the same `Idempotency-Key` gives the first answer.
    """

    def retried(request: RequestKey | None) -> Document:
        _allow_submission(site, user)
        selected = _found(site, sweep_id)
        if selected.state in FINISHED_SWEEP and not selected.failed():
            raise Conflict(sweep_id, "must have failed trials to retry", "none", "Extend it to go on.")
        asked = Asked(user.name, "retry", sweep_id, request=request)
        return _again(site, user, selected, asked, {serving.RETRY_FAILED: True})

    return once(site, user, key, f"retry {sweep_id}", None, retried)


@ROUTER.patch("/sweeps/{sweep_id}", response_model=models.Settings)
def set_priority(
    site: Here,
    user: SignedIn,
    sweep_id: SweepId,
    body: Priority,
    response: Response,
    revision: IfMatch = None,
) -> Document:
    """Set the class and the weight of a sweep, pause or resume it; only an admin grants class `urgent`.

    With `If-Match`, nothing is changed if the sweep has another `revision` (412).
    """
    if body.priority_class == "urgent" and user.role != "admin":
        must = "must be granted by an admin"
        raise NotAllowed("priority_class", must, f"{user.name}, a {user.role}", "Ask an admin.")
    if body.paused is False:
        _allow_start(site, user, sweep_id)
    changes = body.model_dump(exclude_none=True)
    try:
        _, chosen = priorities.change(
            sweep_id,
            **changes,
            revisions=None if revision is None or revision.strip() == "*" else tags(revision),
            asked=Asked(user.name, "priority", sweep_id, changes),
            root=site.workspace.paths.root,
        )
    except StaleRevision:
        raise
    except BadInput as refusal:
        raise (_conflict(refusal) if refusal.where == sweep_id else refusal) from None
    response.headers["ETag"] = f'"{chosen.revision}"'
    return _settings(site, sweep_id, chosen)


@ROUTER.post("/sweeps/{sweep_id}/resume", status_code=202, response_model=models.Settings)
def resume(site: Here, user: SignedIn, sweep_id: SweepId) -> Document:
    """Queue a sweep again that was paused or stopped, or let its driver go on if it has not left."""
    _allow_start(site, user, sweep_id)
    asked = Asked(user.name, "resume", sweep_id)
    try:
        _, chosen = priorities.resume(sweep_id, asked=asked, root=site.workspace.paths.root)
    except BadInput as refusal:
        raise _conflict(refusal) from None
    return _settings(site, sweep_id, chosen)


@ROUTER.patch("/quotas/{owner}", response_model=models.OwnerRow)
def set_quota(site: Here, user: SignedIn, owner: str, body: Quota) -> Document:
    """Set the weight and the quotas of an owner."""
    changes = body.model_dump(exclude_none=True, exclude={"new"})
    asked = Asked(user.name, "quota", owner, changes)
    row = priorities.quota(owner, **changes, new=body.new, asked=asked, root=site.workspace.paths.root)
    site.snapshots.drop()
    return asdict(row)


@ROUTER.get("/users", response_model=models.UserList)
def list_users(site: Here) -> Document:
    """Return all users, without their tokens."""
    return {"users": [asdict(entry) for entry in user_admin.users(root=site.workspace.paths.root)]}


@ROUTER.post("/users", status_code=201, response_model=models.AddedUser)
def add_user(site: Here, user: SignedIn, body: NewUser) -> Document:
    """Add a user, and return the token, which cannot be read again."""
    days = math.inf if body.days is None else body.days
    root = site.workspace.paths.root
    added, token = user_admin.add(body.name, body.role, days=days, actor=user.name, root=root)
    site.snapshots.drop()
    return {**asdict(added), "token": token}


@ROUTER.delete("/users/{name}", response_model=models.UserRow)
def revoke_user(site: Here, user: SignedIn, name: str) -> Document:
    """Revoke the token of a user at once."""
    try:
        revoked = user_admin.revoke(name, actor=user.name, root=site.workspace.paths.root)
    except BadInput as refusal:
        raise NotFound(refusal.where, refusal.must, refusal.got, refusal.remedy) from None
    site.snapshots.drop()
    return asdict(revoked)


@ROUTER.get("/audit", response_model=models.Audit)
def read_audit(
    site: Here,
    before: Annotated[
        int | None, Query(ge=1, le=MOST_WHOLE, description="Only entries with a smaller `seq`.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=audit.MOST_ENTRIES)] = 100,
) -> Document:
    """Return which user asked for which change, the newest first."""
    entries = user_admin.audit_log(before=before, limit=limit, root=site.workspace.paths.root)
    return {"audit": [asdict(entry) for entry in entries]}


def _allow_submission(site: Site, user: User) -> None:
    if not site.submissions.take(user.name):
        must = f"must be at most {SUBMISSIONS_A_MINUTE} submissions a minute"
        raise TooMany("submissions", must, "one more", "Wait a minute.")


def _allow_start(site: Site, user: User, sweep_id: str) -> None:
    """Check that a user may have the driver of a known sweep started."""
    _allow_submission(site, user)
    check_own(site, _found(site, sweep_id).specification, site.owner(sweep_id) or user.name)


def _settings(site: Site, sweep_id: str, chosen: QueueSettings) -> Document:
    site.snapshots.drop()
    return {"id": sweep_id, **asdict(chosen), "weight": chosen.weight / UNIT, "revision": chosen.revision}


def _found(site: Site, sweep_id: str) -> Sweep:
    return Sweep.find(sweep_id, root=site.workspace.paths.root, data=site.workspace.data)


def _again(
    site: Site, user: User, sweep: Sweep, asked: Asked, options: Mapping[str, Any] | None = None
) -> Document:
    """Submit a known sweep, which must have ended, again in the name of its owner."""
    owner = site.owner(sweep.id) or user.name
    check_own(site, sweep.specification, owner)
    return _submitted(site, sweep, owner, options=options, only_ended=True, asked=asked)


def _submitted(site: Site, sweep: Sweep, owner: str, **arguments: Any) -> Document:
    submission, added = serving.submit(sweep, owner=owner, **arguments)
    site.snapshots.drop()
    return submissions.answer_of(submission, added=added)


def _conflict(refusal: BadInput) -> Conflict:
    return Conflict(refusal.where, refusal.must, refusal.got, refusal.remedy)
