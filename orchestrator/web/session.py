"""The routes through which a browser exchanges a token for a cookie, and gives it back."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.ledger.users import LIFETIME_SECONDS
from orchestrator.web import models
from orchestrator.web.access import COOKIE, check_origin, user_of
from orchestrator.web.reading import Document
from orchestrator.web.site import Here

ROUTER = APIRouter()


class SignIn(BaseModel):
    """The token of a user."""

    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, Field(max_length=200)]


@ROUTER.post("/session", response_model=models.SignedInUser)
def sign_in(site: Here, request: Request, response: Response, body: SignIn) -> Document:
    """Put the token into a cookie that scripts cannot read and other sites cannot send."""
    check_origin(request)
    user = user_of(site, body.token.strip(), request)
    left = LIFETIME_SECONDS if user.expires_at is None else user.expires_at - time.time()
    response.set_cookie(
        COOKIE,
        body.token.strip(),
        max_age=int(left),
        httponly=True,
        samesite="strict",
        secure=site.secure,
    )
    return {"name": user.name, "role": user.role}


@ROUTER.delete("/session", response_model=models.Health)
def sign_out(request: Request, response: Response) -> Document:
    """Remove the cookie."""
    check_origin(request)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return {"status": "ok"}
