"""Who may do what over HTTP: one table of all routes, and the check that runs before every handler.

A program sends its token in the header `Authorization: Bearer`. A browser exchanges it once for a session,
whose random id is in a cookie that scripts cannot read and other sites cannot send; a change by cookie must
also carry a header that only a page of this server can set.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from fastapi import Depends, Request

from orchestrator.ledger.people.users import User, digest
from orchestrator.web.problems import NotAllowed, NotSignedIn, TooMany, WrongHost
from orchestrator.web.site import Site

Level = Literal["open", "viewer", "member", "owner", "admin"]
"""Who may use a route: everybody; every user; members and admins; the owner of the sweep, as long as a
member, and admins; admins."""

ACCESS: Mapping[str, Level] = {
    "health": "open",
    "ready": "open",
    "sign_in": "open",
    "sign_out": "open",
    "home_page": "open",
    "sign_in_page": "open",
    "start_page": "open",
    "machines_page": "open",
    "sweep_page": "open",
    "trial_page": "open",
    "asset": "open",
    "me": "viewer",
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
    "show_changes": "viewer",
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
    "validate": "member",
    "submit": "member",
    "stop": "owner",
    "extend": "owner",
    "retry": "owner",
    "resume": "owner",
    "set_priority": "owner",
    "set_quota": "admin",
    "list_users": "admin",
    "add_user": "admin",
    "revoke_user": "admin",
    "read_audit": "admin",
}
"""Who may use each route, by the name of its handler."""

COOKIE = "sweep_session"
CHANGE_HEADER = "x-sweep-change"
"""Header that a change by cookie must carry; a browser sends it to another site only if that site agrees."""

_READING = frozenset({"GET", "HEAD"})


def admitted(request: Request) -> User | None:
    """Return the user of a request that its route permits; None on routes that are open to everybody.

    Raises:
        NotSignedIn: the token is missing or not valid.
        NotAllowed: the role of the user does not permit the request.
        NotFound: there is no such sweep.
        TooMany: too many requests with a wrong token came from the address.
        WrongHost: a page of another site has sent the request.
    """
    site: Site = request.app.state.site
    level = ACCESS[request.scope["route"].name]
    if level == "open":
        return None
    user = _user(site, request)
    sweep_id = request.path_params.get("sweep_id")
    if not _permits(level, user, site.owner(sweep_id) if sweep_id is not None else None):
        must = f"must be asked for by {_PHRASES[level]}"
        raise NotAllowed(request.url.path, must, f"{user.name}, a {user.role}", "Ask an admin to do it.")
    return user


def _signed_in(request: Request) -> User:
    user: User | None = request.state.user
    assert user is not None, "only routes that are not open ask for their user"
    return user


SignedIn = Annotated[User, Depends(_signed_in)]
"""The parameter through which a request handler receives its user."""

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


def _user(site: Site, request: Request) -> User:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return user_of(site, token.strip(), request)[0]
    session = request.cookies.get(COOKIE, "")
    if session and request.method not in _READING:
        check_origin(request)
    of_token, ends = site.sessions().get(digest(session), ("", 0.0))
    return _valid(site, of_token if time.time() < ends else "", bool(session), request)[0]


def user_of(site: Site, token: str, request: Request) -> tuple[User, str]:
    """Return the user of a token, and its digest.

    Raises:
        NotSignedIn: the token is not valid.
        TooMany: too many requests with a wrong token came from the address.
    """
    return _valid(site, digest(token), bool(token), request)


def _valid(site: Site, token_digest: str, given: bool, request: Request) -> tuple[User, str]:
    user = site.users().get(token_digest)
    if user is not None and user.is_active(time.time()):
        return user, token_digest
    address = request.client.host if request.client else ""
    if given and not site.bad_tokens.take(address):
        raise TooMany("token", "must be valid", "several wrong ones within a minute", "Wait a minute.")
    got = "none" if not given else "one that is unknown, revoked or expired"
    remedy = "Send `Authorization: Bearer TOKEN`; an admin gets a token with `sweep user add NAME`."
    raise NotSignedIn("token", "must be the valid token of a user", got, remedy)


def check_origin(request: Request) -> None:
    """Check that a page of this server has sent a change.

    Raises:
        WrongHost: it did not.
    """
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    is_own = origin is not None and urlsplit(origin).netloc.lower() == host.lower()
    if not is_own or CHANGE_HEADER not in request.headers:
        must = f"must come from a page of this server, with the header {CHANGE_HEADER}"
        raise WrongHost("Origin", must, repr(origin), "Send the token as `Authorization: Bearer` instead.")
