"""The routes through which a browser exchanges a token for a session, and ends it."""

from __future__ import annotations

import math
import time
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api import user_admin
from orchestrator.ledger.people.users import User, digest, end_session, open_session
from orchestrator.web import models
from orchestrator.web.access import COOKIE, check_origin, user_of
from orchestrator.web.reading import Document
from orchestrator.web.site import Here, Site

ROUTER = APIRouter()


class SignIn(BaseModel):
    """The token of a user, or the key in the link that the service has printed."""

    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, Field(max_length=200)]


@ROUTER.post("/session", response_model=models.SignedInUser)
def sign_in(site: Here, request: Request, response: Response, body: SignIn) -> Document:
    """Open a session, and put its id into a cookie that scripts cannot read and other sites cannot send."""
    check_origin(request)
    user, token_digest = _signed_in(site, body.token.strip(), request)
    with site.ledger() as ledger:
        session, ends = open_session(ledger, token_digest, user.expires_at or math.inf)
    site.snapshots.drop()
    response.set_cookie(
        COOKIE,
        session,
        max_age=int(ends - time.time()),
        httponly=True,
        samesite="strict",
        secure=site.secure,
    )
    return {"name": user.name, "role": user.role}


@ROUTER.delete("/session", response_model=models.Health)
def sign_out(site: Here, request: Request, response: Response) -> Document:
    """End the session, and remove the cookie."""
    check_origin(request)
    if session := request.cookies.get(COOKIE):
        with site.ledger() as ledger:
            end_session(ledger, session)
        site.snapshots.drop()
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return {"status": "ok"}


def _signed_in(site: Site, given: str, request: Request) -> tuple[User, str]:
    """Return the user of a token, or of the key of the service, and the digest of the user's token."""
    if site.key is None or not site.key.take(given):
        return user_of(site, given, request)
    name = site.key.user
    known = {user.name: (user, token) for token, user in site.users().items()}
    if name in known:
        return known[name]
    user, token = user_admin.add(name, "admin", root=site.workspace.paths.root)
    return user, digest(token)
