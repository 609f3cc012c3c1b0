"""Routes of sessions, users, quotas, the audit log and health."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from orchestrator.api import bill, notice_admin, priorities, user_admin
from orchestrator.api.local import quota_row
from orchestrator.api.serving import MOST_SILENT_SECONDS
from orchestrator.client.answers import AddedUser, CostRow, NoticeTarget, QuotaRow
from orchestrator.ledger.people import audit
from orchestrator.ledger.people import users as ledger_users
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.user_records import AuditEntry, User
from orchestrator.ledger.people.user_records import Role as UserRole
from orchestrator.ledger.people.users import digest, end_session, open_session
from orchestrator.ledger.pool import claims
from orchestrator.sharing.pool_rows import Owner
from orchestrator.web.access import COOKIE, SignedIn, check_origin, set_session_cookie, user_of_token
from orchestrator.web.app_state import App, AppState
from orchestrator.web.http_errors import NoProvider, Unhealthy
from orchestrator.web.paging import MOST_WHOLE
from orchestrator.web.sweep_routes import ANALYSIS_SECONDS

ROUTER = APIRouter()

OwnerName = Annotated[str, Path(description="Owner of sweeps.", max_length=200)]


class Body(BaseModel):
    """Base of request bodies; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SignIn(Body):
    """Token of a user, or the key in the link that the service has printed."""

    token: Annotated[str, Field(max_length=200)]


class Quota(Body):
    """Changes of an owner's weight and quotas."""

    weight: Annotated[float | None, Field(description="Greater than 0, and at most 10,000.")] = None
    share: Annotated[float | None, Field(description="Fraction of a cluster, from 0 to 1.")] = None
    gpu_hours: Annotated[float | None, Field(description="Largest number of GPU-hours a week.")] = None
    sweeps: Annotated[
        float | None, Field(description="Largest number of queued and running sweeps, an integer.")
    ] = None
    new: Annotated[bool, Field(description="Allow an owner that does not exist yet.")] = False


class NewUser(Body):
    """User to add."""

    name: Annotated[str, Field(max_length=64)]
    role: Literal["viewer", "member", "admin"] = "member"
    days: Annotated[float | None, Field(description="Days until the token expires; null for never.")] = (
        user_admin.DAYS
    )


class PriceFile(Body):
    """Price of a GPU-hour by device, and of a core-hour as `CPU`."""

    name: Annotated[str, Field(max_length=200, description="Name of the file, for errors.")]
    text: Annotated[str, Field(max_length=20_000, description="The file, in YAML.")]


class CostQuestion(Body):
    """Prices and period of a bill."""

    prices: PriceFile | None = None
    since: Annotated[
        float | None, Field(allow_inf_nan=False, description="Earliest time that counts, in seconds.")
    ] = None


class NewNotice(Body):
    """Target of notifications."""

    target: Annotated[
        str, Field(max_length=3_000, description="`https://...`, `slack+https://...` or `mailto:...`.")
    ]
    events: Annotated[tuple[str, ...], Field(max_length=20, description="Such as `best`; all if empty.")] = ()
    name: Annotated[
        str, Field(max_length=100, description="Name for `notify` of files; empty to hear of all sweeps.")
    ] = ""


@dataclass(frozen=True)
class NoticeList:
    """Targets of notifications of the user, without their secrets."""

    notices: Sequence[NoticeTarget]


@dataclass(frozen=True)
class CostList:
    """What each sweep has used, by device."""

    cost: Sequence[CostRow]


@dataclass(frozen=True)
class Health:
    """Health of the server."""

    status: Literal["ok"] = "ok"


@dataclass(frozen=True)
class SignedOut(Health):
    """End of a session.

    Attributes:
        provider: Address at which a browser ends its session at the provider of single sign-on, or None.
    """

    provider: str | None = None


@dataclass(frozen=True)
class SignedInUser:
    """Name and role of a user."""

    name: str
    role: UserRole


@dataclass(frozen=True)
class UserList:
    """All users."""

    users: Sequence[User]


@dataclass(frozen=True)
class QuotaList:
    """Weights and quotas of owners that differ from the defaults."""

    quotas: Sequence[QuotaRow]


@dataclass(frozen=True)
class AuditLog:
    """Entries of the audit log, the newest first."""

    audit: Sequence[AuditEntry]


@ROUTER.get("/healthz")
async def health(app: App) -> Health:
    """Check that the server answers and the supervision completes its rounds."""
    if app.rounds is not None and app.rounds.are_late:
        must = f"must complete a round every {MOST_SILENT_SECONDS:g} s"
        got = f"none for {app.rounds.silent_seconds:.0f} s"
        remedy = "The log of the service names the cause, such as its ledger; restart it otherwise."
        raise Unhealthy("supervision", must, got, remedy)
    return Health()


@ROUTER.get("/readyz")
def ready(app: App) -> Health:
    """Check that the ledger answers too."""
    app.users()
    return Health()


@ROUTER.post("/session")
def sign_in(app: App, request: Request, response: Response, body: SignIn) -> SignedInUser:
    """Open a session, with an HttpOnly and SameSite=Strict cookie."""
    check_origin(request)
    user, token_digest = _signed_in(app, body.token.strip(), request)
    with app.ledger() as ledger:
        session, expires_at = open_session(ledger, token_digest, user.expires_at or math.inf)
    app.cache.clear()
    set_session_cookie(app, response, session, expires_at)
    return SignedInUser(user.name, user.role)


@ROUTER.delete("/session")
async def sign_out(app: App, request: Request, response: Response) -> SignedOut:
    """End the session and remove its cookie."""
    check_origin(request)
    user = await run_in_threadpool(_signed_out, app, request.cookies.get(COOKIE, ""))
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    if app.provider is not None and user is not None and user.subject is not None:
        with suppress(NoProvider):  # it is logged, and the session here has ended
            return SignedOut(provider=await app.provider.end_address())
    return SignedOut()


def _signed_out(app: AppState, session: str) -> User | None:
    """End a session; return its user, or None if it does not exist."""
    token_digest, _ = app.sessions().get(digest(session), ("", 0.0))
    user = app.users().get(token_digest)
    with app.ledger() as ledger:
        end_session(ledger, session)
    app.cache.clear()
    return user


def _signed_in(app: AppState, given: str, request: Request) -> tuple[User, str]:
    """Return the user of a token or of the sign-in key, and the digest of the user's token."""
    if app.key is None or not app.key.take(given):
        return user_of_token(app, given, request)
    name = app.key.user
    known = {user.name: (user, token_digest) for token_digest, user in app.users().items()}
    if name in known:
        return known[name]
    user, token = user_admin.add(name, "admin", root=app.workspace.paths.root)
    return user, digest(token)


@ROUTER.get("/me")
def me(user: SignedIn) -> User:
    """Show the user of the token."""
    return user


@ROUTER.post("/me/token", status_code=201)
def issue_token(app: App, user: SignedIn) -> AddedUser:
    """Replace the token of a single-sign-on user; only this answer contains the new one."""
    with app.ledger() as ledger:
        renewed, token = ledger_users.issue_token(ledger, user.name)
    app.cache.clear()
    return AddedUser(**vars(renewed), token=token)


@ROUTER.get("/users")
def list_users(app: App) -> UserList:
    """List all users, without their tokens."""
    return UserList(app.backend.users())


@ROUTER.post("/users", status_code=201)
def add_user(app: App, user: SignedIn, body: NewUser) -> AddedUser:
    """Add a user; only this answer contains the token."""
    days = math.inf if body.days is None else body.days
    root = app.workspace.paths.root
    added, token = user_admin.add(body.name, body.role, days=days, actor=user.name, root=root)
    app.cache.clear()
    return AddedUser(**vars(added), token=token)


@ROUTER.delete("/users/{name}")
def revoke_user(app: App, user: SignedIn, name: str) -> User:
    """Revoke the token of a user at once."""
    revoked = user_admin.revoke(name, actor=user.name, root=app.workspace.paths.root)
    app.cache.clear()
    return revoked


@ROUTER.get("/quotas")
def list_quotas(app: App) -> QuotaList:
    """List the weights and quotas of owners that differ from the defaults."""

    def read() -> QuotaList:
        with app.ledger() as ledger:
            return QuotaList([quota_row(owner) for owner in claims.owners(ledger).values()])

    return app.cache.get("quotas", read)


@ROUTER.get("/quotas/{owner}")
def show_quota(app: App, owner: OwnerName) -> QuotaRow:
    """Show the weight and the quotas of an owner, or the defaults."""
    return app.backend.quota(owner)


@ROUTER.patch("/quotas/{owner}")
def set_quota(app: App, user: SignedIn, owner: str, body: Quota) -> Owner:
    """Set the weight and the quotas of an owner."""
    changes = body.model_dump(exclude_none=True, exclude={"new"})
    asked = Asked(user.name, "quota", owner, changes)
    row = priorities.quota(owner, **changes, new=body.new, asked=asked, root=app.workspace.paths.root)
    app.cache.clear()
    return row


@ROUTER.post("/cost")
def show_cost(app: App, body: CostQuestion) -> CostList:
    """Show the hours of every sweep, by owner, sweep and device, with their cost if prices are given."""
    listed = None if body.prices is None else bill.price_list(body.prices.text, body.prices.name)

    def read() -> Sequence[CostRow]:
        with app.ledger() as ledger:
            return bill.hours(ledger, body.since)

    found = app.cache.get(("cost", body.since), read, fresh=ANALYSIS_SECONDS)
    return CostList(found if listed is None else bill.priced(found, listed))


@ROUTER.get("/notices")
def list_notices(app: App, user: SignedIn) -> NoticeList:
    """List the user's targets of notifications, without their secrets."""
    return NoticeList(notice_admin.listed(user.name, root=app.workspace.paths.root))


@ROUTER.post("/notices")
def add_notice(app: App, user: SignedIn, body: NewNotice) -> NoticeList:
    """Send notifications about the user's sweeps to a target on a public network."""
    root = app.workspace.paths.root
    added = notice_admin.add(body.target, body.events, body.name, over_http=user.name, root=root)
    return NoticeList(added)


@ROUTER.delete("/notices/{number}")
def remove_notice(app: App, user: SignedIn, number: Annotated[int, Path(ge=0, le=MOST_WHOLE)]) -> NoticeList:
    """Remove one of the user's targets of notifications."""
    return NoticeList(notice_admin.remove(number, over_http=user.name, root=app.workspace.paths.root))


@ROUTER.get("/audit")
def read_audit(
    app: App,
    before: Annotated[
        int | None, Query(ge=1, le=MOST_WHOLE, description="Only entries with a smaller `seq`.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=audit.MOST_ENTRIES)] = 100,
) -> AuditLog:
    """List the entries of the audit log, the newest first."""
    return AuditLog(user_admin.audit_log(before=before, limit=limit, root=app.workspace.paths.root))
