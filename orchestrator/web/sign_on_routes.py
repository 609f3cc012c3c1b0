"""Routes of single sign-on: to the provider and back.

No parameter names a page: the browser always returns to the sign-in page, which itself knows where its user
came from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from orchestrator.errors import NotAllowed, NotFound, TooManyRequests
from orchestrator.ledger.people.users import end_subject, open_session, sign_on
from orchestrator.web.access import set_session_cookie
from orchestrator.web.app_state import SIGN_ONS_A_MINUTE, App, AppState

if TYPE_CHECKING:  # its packages are an extra
    from orchestrator.web.identity_provider import Identity, IdentityProvider

ROUTER = APIRouter(include_in_schema=False)

PENDING_COOKIE = "sweep_sign_on"
"""Cookie of a sign-on in progress. It is SameSite=Lax, since the provider's page leads back."""

PATH = "/sign-on"

SEE_OTHER = 303

OfProvider = Annotated[str, Query(max_length=4_096)]
"""Parameter that the provider appends to the address of the callback."""


@ROUTER.get(PATH)
async def begin_sign_on(app: App, request: Request) -> RedirectResponse:
    """Lead the browser to the provider."""
    provider = _provider(app)
    if not app.sign_ons.take(request.client.host if request.client else ""):
        must = f"must be at most {SIGN_ONS_A_MINUTE} a minute from one address"
        raise TooManyRequests("sign-ons", must, "more", "Wait a minute.")
    address, key = await provider.begin()
    answer = RedirectResponse(address, SEE_OTHER)
    answer.set_cookie(PENDING_COOKIE, key, path=PATH, httponly=True, samesite="lax", secure=app.secure)
    return answer


@ROUTER.get(f"{PATH}/callback")
async def finish_sign_on(
    app: App, request: Request, state: OfProvider = "", code: OfProvider = "", error: OfProvider = ""
) -> RedirectResponse:
    """Open a session of the person that the provider has identified."""
    identity = await _provider(app).finish(request.cookies.get(PENDING_COOKIE, ""), state, code, error)
    session, expires_at = await run_in_threadpool(_opened, app, identity)
    answer = RedirectResponse("/sign-in?signed-on", SEE_OTHER)
    set_session_cookie(app, answer, session, expires_at)
    answer.delete_cookie(PENDING_COOKIE, path=PATH, httponly=True, samesite="lax")
    return answer


def _opened(app: AppState, identity: Identity) -> tuple[str, float]:
    """Open a session; return its ID and its expiry."""
    lifetime = _provider(app).settings.days * 86_400.0
    try:
        with app.ledger() as ledger:
            if identity.role is None:
                end_subject(ledger, identity.subject)
                must = "must be in a group that has a role in this service"
                raise NotAllowed(f"user {identity.name}", must, "none of them", "Ask an admin.")
            of_user = (identity.subject, identity.name, identity.role)
            user, token_digest = sign_on(ledger, *of_user, lifetime=lifetime)
            return open_session(ledger, token_digest, user.expires_at or 0.0)
    finally:
        app.cache.clear()


def _provider(app: AppState) -> IdentityProvider:
    if app.provider is None:
        remedy = "Sign in with a token, or start the service with `serve --oidc FILE`."
        raise NotFound("single sign-on", "is not set up", "", remedy)
    return app.provider
