"""Idempotency keys: a request that is repeated with its key gets the first answer, and changes nothing.

The answer is written in the transaction of the change. A process that dies before its commit has changed
nothing, and the request may be repeated once `IN_WORK_SECONDS` have passed.

Source: The Idempotency-Key HTTP Header Field, draft-ietf-httpapi-idempotency-key-header-07.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, insert, select, update

from orchestrator.errors import Busy
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.tables import REQUEST_KEY

KEPT_SECONDS = 86_400.0
"""Lifetime of the answer to a key."""

IN_WORK_SECONDS = 300.0
"""Age at which a request without an answer counts as lost with its process; no request takes so long."""


@dataclass(frozen=True)
class RequestKey:
    """Idempotency key of a request that this process carries out.

    Attributes:
        user: Name of the user, to whom the key belongs.
        key: Key chosen by the user.
        at: Beginning of the request, seconds since the epoch.
    """

    user: str
    key: str
    at: float


@dataclass(frozen=True)
class Known:
    """An earlier request with the same key.

    Attributes:
        digest: Digest of its body.
        answer: Its answer, or None while it runs.
    """

    digest: str
    answer: Mapping[str, Any] | None


def begin(ledger: Ledger, user: str, key: str, digest: str) -> RequestKey | Known:
    """Begin a request, or return the earlier one with the same key; delete expired keys.

    Args:
        ledger: Ledger with the keys.
        user: Name of the user.
        key: Key chosen by the user.
        digest: Digest of the request's body.
    """
    now = ledger.now()
    expired = REQUEST_KEY.c.at < now - KEPT_SECONDS
    lost = and_(REQUEST_KEY.c.answer.is_(None), REQUEST_KEY.c.at < now - IN_WORK_SECONDS)

    def write(connection: Connection) -> RequestKey | Known:
        for old in (expired, lost):  # two statements: each has an index of its own
            connection.execute(delete(REQUEST_KEY).where(old))
        row = connection.execute(select(REQUEST_KEY).where(_of(user, key))).one_or_none()
        if row is not None:
            return Known(row.digest, None if row.answer is None else json.loads(row.answer))
        values = {"user": user, "key": key, "digest": digest, "at": now}
        connection.execute(insert(REQUEST_KEY).values(**values))
        return RequestKey(user, key, now)

    return ledger.transact(write)


def complete(connection: Connection, request: RequestKey, answer: Mapping[str, Any]) -> None:
    """Write the answer to a request, in the transaction of its change.

    Raises:
        Busy: The request counted as lost, and may have been repeated.
    """
    query = update(REQUEST_KEY).where(_in_work(request)).values(answer=json.dumps(answer))
    if connection.execute(query).rowcount != 1:
        must = f"has expired: the request took more than {IN_WORK_SECONDS:g} s"
        raise Busy("Idempotency-Key", must, "", "Send the request again.")


def forget(ledger: Ledger, request: RequestKey) -> None:
    """Delete the key of a request that has changed nothing, so that it can be used again."""
    ledger.transact(lambda connection: connection.execute(delete(REQUEST_KEY).where(_in_work(request))))


def _of(user: str, key: str) -> Any:
    return and_(REQUEST_KEY.c.user == user, REQUEST_KEY.c.key == key)


def _in_work(request: RequestKey) -> Any:
    own = _of(request.user, request.key)
    return and_(own, REQUEST_KEY.c.at == request.at, REQUEST_KEY.c.answer.is_(None))
