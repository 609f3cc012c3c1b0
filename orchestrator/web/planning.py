"""The routes that help to write a search-space file: an example, and what a file would run."""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.api import templates
from orchestrator.web import models
from orchestrator.web.access import SignedIn
from orchestrator.web.bodies import Validate
from orchestrator.web.problems import TooMany
from orchestrator.web.reading import Document
from orchestrator.web.site import VALIDATIONS_A_MINUTE, Here
from orchestrator.web.submitted import validated
from orchestrator.web.yaml_bodies import FileRoute, described

ROUTER = APIRouter()
FILES = APIRouter(route_class=FileRoute)


@ROUTER.get("/example")
def example() -> models.Example:
    """Return a small search-space file that runs on every machine."""
    return models.Example(name=templates.EXAMPLE_NAME, text=templates.EXAMPLE)


@FILES.post("/validate", response_model=models.Validated, openapi_extra=described("sizes"))
def validate(site: Here, user: SignedIn, body: Validate) -> Document:
    """Return what a file would run, or why it is refused; nothing is submitted.

    With `application/yaml`, the body is the file itself.
    """
    if not site.validations.take(user.name):
        must = f"must be at most {VALIDATIONS_A_MINUTE} files a minute"
        raise TooMany("validate", must, "one more", "Wait a minute.")
    return validated(site, body.sent, user.name, sizes=body.sizes)
