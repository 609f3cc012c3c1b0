"""Requests with an `Idempotency-Key`: repeating one gives its first answer.

Source: The Idempotency-Key HTTP Header Field, draft-ietf-httpapi-idempotency-key-header-07, section 2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Header

from orchestrator.errors import BadInput
from orchestrator.ledger.people import idempotency
from orchestrator.ledger.people.idempotency import Known, RequestKey
from orchestrator.ledger.people.users import User
from orchestrator.web.bodies import Body
from orchestrator.web.problems import Conflict
from orchestrator.web.site import Site

_HEADER = "Idempotency-Key"

Key = Annotated[
    str | None,
    Header(
        alias=_HEADER,
        min_length=1,
        max_length=200,
        description="The same request with the same key within a day gives the first answer.",
    ),
]


def once(
    site: Site,
    user: User,
    key: str | None,
    what: str,
    body: Body | None,
    change: Callable[[RequestKey | None], dict[str, Any]],
) -> dict[str, Any]:
    """Make a change, or return the answer to the earlier request with the same key.

    A key belongs to its user. A change that is refused uses up no key.

    Args:
        site: that received the request.
        user: who sent it.
        key: of the request, or None.
        what: names the change, and the sweep if there is one before.
        body: of the request, or None.
        change: makes the change, writes its answer in the same transaction, and returns it.

    Raises:
        BadInput: the earlier request had another body, or was for another change.
        Conflict: the earlier request has no answer yet.
    """
    if key is None:
        return change(None)
    digest = digest_of(what, body)
    with site.ledger() as ledger:
        request = idempotency.begin(ledger, user.name, key, digest)
    if isinstance(request, Known):
        return _answer(request, digest)
    try:
        return change(request)
    except BaseException:
        with site.ledger() as ledger:
            idempotency.forget(ledger, request)
        raise


def digest_of(what: str, body: Body | None) -> str:
    """Return what two requests have in common that ask for the same."""
    return hashlib.sha256(f"{what}\n{body.model_dump_json() if body else ''}".encode()).hexdigest()


def _answer(known: Known, digest: str) -> dict[str, Any]:
    if known.digest != digest:
        must = "must not be that of another request"
        raise BadInput(_HEADER, must, "the key of one with another address or body", "Choose another key.")
    if known.answer is None:
        must = "must not be that of a request which is in work"
        raise Conflict(_HEADER, must, "no answer yet", "Send the request again in a few seconds.")
    return dict(known.answer)
