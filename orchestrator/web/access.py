"""Authentication, and the table of the role that each route requires.

Programs send the header `Authorization: Bearer TOKEN`. A browser exchanges its token, or a sign-on at the
provider, once for a session cookie, which is HttpOnly and SameSite=Strict. A change by cookie must also carry
a header that only a page of this server can set.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from orchestrator.errors import NotAllowed, NotSignedIn, TooManyRequests
from orchestrator.ledger.people.user_records import User
from orchestrator.ledger.people.users import digest
from orchestrator.web.app_state import AppState
from orchestrator.web.http_errors import WrongHost

Level = Literal["open", "viewer", "member", "owner", "admin"]
"""Users of a route: anyone; all users; members and admins; admins, and the owner of the sweep if a member;
admins."""

ACCESS: Mapping[str, Level] = {
    "health": "open",
    "ready": "open",
    "sign_in": "open",
    "sign_out": "open",
    "begin_sign_on": "open",
    "finish_sign_on": "open",
    "home_page": "open",
    "compare_page": "open",
    "sign_in_page": "open",
    "start_page": "open",
    "machines_page": "open",
    "people_page": "open",
    "sweep_page": "open",
    "trial_page": "open",
    "asset": "open",
    "metrics": "viewer",
    "agent_tools": "viewer",
    "me": "viewer",
    "issue_token": "viewer",
    "list_sweeps": "viewer",
    "show_sweep": "viewer",
    "show_live": "viewer",
    "show_mlflow": "viewer",
    "list_trials": "viewer",
    "show_trial": "viewer",
    "list_reports": "viewer",
    "list_trial_reports": "viewer",
    "show_curves": "viewer",
    "analysis": "viewer",
    "show_result": "viewer",
    "show_changes": "viewer",
    "compare": "viewer",
    "replay": "viewer",
    "sql": "admin",
    "show_pareto": "viewer",
    "read_log": "viewer",
    "read_trial_log": "viewer",
    "show_file": "viewer",
    "report": "viewer",
    "list_artifacts": "viewer",
    "read_artifact": "viewer",
    "list_queue": "viewer",
    "show_pools": "viewer",
    "example": "member",
    "watch_all": "viewer",
    "watch_sweep": "viewer",
    "list_quotas": "viewer",
    "show_quota": "viewer",
    "show_cost": "viewer",
    "validate": "member",
    "submit": "member",
    "stop": "owner",
    "stop_trial": "owner",
    "resume_trial": "owner",
    "try_setting": "owner",
    "shelve": "owner",
    "show_deletion": "viewer",
    "show_disk": "viewer",
    "note_sweep": "owner",
    "note_trial": "owner",
    "extend": "owner",
    "retry": "owner",
    "resume": "owner",
    "set_priority": "owner",
    "set_quota": "admin",
    "list_notices": "member",
    "add_notice": "member",
    "remove_notice": "member",
    "list_users": "admin",
    "add_user": "admin",
    "revoke_user": "admin",
    "read_audit": "admin",
}
"""Required role by the name of the request handler."""

COOKIE = "sweep_session"
CHANGE_HEADER = "x-sweep-change"
"""Header of a change by cookie; a browser sends it to another site only if that site permits it."""

ADMISSION_SECONDS = 0.1
"""Time for which cached answers must stay fresh so that `admitted` reads no ledger."""

_READING = frozenset({"GET", "HEAD"})


def admitted(request: Request) -> User | None:
    """Return the user of a request, or None on a route without authentication.

    Raises:
        NotSignedIn: The token is missing or invalid.
        NotAllowed: The role of the user does not permit the request.
        NotFound: The sweep does not exist.
        TooManyRequests: The address has sent too many invalid tokens.
        WrongHost: A page of another site has sent the request.
    """
    state: AppState = request.app.state.shared
    level = ACCESS[request.scope["route"].name]
    if level == "open":
        return None
    user = _user(state, request)
    sweep_id = request.path_params.get("sweep_id")
    if not _permits(level, user, state.owner(sweep_id) if sweep_id is not None else None):
        must = f"requires {_PHRASES[level]}"
        raise NotAllowed(request.url.path, must, f"{user.name}, a {user.role}", "Ask an admin to do it.")
    return user


async def admit(request: Request) -> None:
    """Store the user of a request in its state, or None on a route without authentication.

    Raises what `admitted` raises. Most requests need only cached state, and are checked without another
    thread, which would take longer.
    """
    state: AppState = request.app.state.shared
    is_cached = all(state.cache.lasts(key, ADMISSION_SECONDS) for key in _needed(request))
    request.state.user = admitted(request) if is_cached else await run_in_threadpool(admitted, request)


def _needed(request: Request) -> Iterator[str]:
    """Yield the answers of the state that `admitted` needs."""
    if ACCESS[request.scope["route"].name] == "open":
        return
    yield "users"
    if not request.headers.get("authorization", "").lower().startswith("bearer "):
        yield "sessions"
    if "sweep_id" in request.path_params:
        yield "owners"


async def _signed_in(request: Request) -> User:
    user: User | None = request.state.user
    assert user is not None, "only routes without authentication have no user"
    return user


SignedIn = Annotated[User, Depends(_signed_in)]
"""Parameter of a request handler: the signed-in user."""

_PHRASES: Mapping[Level, str] = {
    "viewer": "a user",
    "member": "a member or an admin",
    "owner": "the owner of the sweep or an admin",
    "admin": "an admin",
}


def _permits(level: Level, user: User, owner: str | None) -> bool:
    if user.role == "admin" or level == "viewer":
        return True
    if user.role == "viewer" or level == "admin":
        return False
    return level == "member" or owner == user.name


def _user(state: AppState, request: Request) -> User:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return user_of_token(state, token.strip(), request)[0]
    session = request.cookies.get(COOKIE, "")
    if session and request.method not in _READING:
        check_origin(request)
    token_digest, expires_at = state.sessions().get(digest(session), ("", 0.0))
    return _valid(state, token_digest if time.time() < expires_at else "", bool(session), request)[0]


def user_of_token(state: AppState, token: str, request: Request) -> tuple[User, str]:
    """Return the user and the digest of a token.

    Raises:
        NotSignedIn: The token is invalid.
        TooManyRequests: The address has sent too many invalid tokens.
    """
    return _valid(state, digest(token), bool(token), request)


def _valid(state: AppState, token_digest: str, given: bool, request: Request) -> tuple[User, str]:
    user = state.users().get(token_digest)
    if user is not None and user.is_active(time.time()):
        return user, token_digest
    address = request.client.host if request.client else ""
    if given and not state.bad_tokens.take(address):
        got = "several invalid tokens within a minute"
        raise TooManyRequests("token", "was invalid too often", got, "Wait a minute.")
    got = "an unknown, revoked or expired token" if given else "no token"
    remedy = "Send `Authorization: Bearer TOKEN`; an admin creates tokens with `sweep user add NAME`."
    raise NotSignedIn("token", "must be the valid token of a user", got, remedy)


def set_session_cookie(state: AppState, response: Response, session: str, expires_at: float) -> None:
    """Set the cookie of a session, which ends at a time in seconds since the epoch."""
    response.set_cookie(
        COOKIE,
        session,
        max_age=int(expires_at - time.time()),
        httponly=True,
        samesite="strict",
        secure=state.secure,
    )


def check_origin(request: Request) -> None:
    """Check that a page of this server has sent a change.

    Raises:
        WrongHost: The request comes from elsewhere.
    """
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    is_own = origin is not None and urlsplit(origin).netloc.lower() == host.lower()
    if not is_own or CHANGE_HEADER not in request.headers:
        must = f"must be this server's own address, and the header {CHANGE_HEADER} must be set"
        raise WrongHost("Origin", must, repr(origin), "Send the token as `Authorization: Bearer` instead.")
