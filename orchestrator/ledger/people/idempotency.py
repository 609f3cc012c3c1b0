"""Keys of requests: a request that is repeated with its key gets its first answer, and changes nothing.

The answer is written in the transaction of the change. A process that dies before its commit has changed
nothing, and the request may be made again once `IN_WORK_SECONDS` have passed.

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
"""How long the answer to a key is kept."""

IN_WORK_SECONDS = 300.0
"""Age from which a request without an answer is taken as lost with its process; no request takes so long."""


@dataclass(frozen=True)
class RequestKey:
    """A request whose change this process is to make.

    Attributes:
        user: name of the user, to whom the key belongs.
        key: as the user has chosen it.
        at: when the request began, seconds since the epoch.
    """

    user: str
    key: str
    at: float


@dataclass(frozen=True)
class Known:
    """An earlier request with the same key.

    Attributes:
        digest: of its body.
        answer: to it, or None while it is in work.
    """

    digest: str
    answer: Mapping[str, Any] | None


def begin(ledger: Ledger, user: str, key: str, digest: str) -> RequestKey | Known:
    """Begin a request, or return the earlier one with the same key; forget keys that have expired.

    Args:
        ledger: of the sweeps.
        user: name of the user.
        key: as the user has chosen it.
        digest: of the body of the request.
    """
    now = ledger.now()
    expired = REQUEST_KEY.c.at < now - KEPT_SECONDS
    lost = and_(REQUEST_KEY.c.answer.is_(None), REQUEST_KEY.c.at < now - IN_WORK_SECONDS)

    def attempt() -> RequestKey | Known:
        with ledger.writer() as connection, connection.begin():
            for old in (expired, lost):  # two statements: each has an index of its own
                connection.execute(delete(REQUEST_KEY).where(old))
            row = connection.execute(select(REQUEST_KEY).where(_of(user, key))).one_or_none()
            if row is not None:
                return Known(row.digest, None if row.answer is None else json.loads(row.answer))
            values = {"user": user, "key": key, "digest": digest, "at": now}
            connection.execute(insert(REQUEST_KEY).values(**values))
            return RequestKey(user, key, now)

    return ledger.retried(attempt)


def complete(connection: Connection, request: RequestKey, answer: Mapping[str, Any]) -> None:
    """Write the answer to a request, in the transaction of its change.

    Raises:
        Busy: the request was taken as lost, and may have been made again.
    """
    query = update(REQUEST_KEY).where(_in_work(request)).values(answer=json.dumps(answer))
    if connection.execute(query).rowcount != 1:
        must = f"must be answered within {IN_WORK_SECONDS:g} s"
        raise Busy("Idempotency-Key", must, "an older request", "Send the request again.")


def forget(ledger: Ledger, request: RequestKey) -> None:
    """Forget a request that has changed nothing, so that its key can be used again."""

    def attempt() -> None:
        with ledger.writer() as connection, connection.begin():
            connection.execute(delete(REQUEST_KEY).where(_in_work(request)))

    ledger.retried(attempt)


def _of(user: str, key: str) -> Any:
    return and_(REQUEST_KEY.c.user == user, REQUEST_KEY.c.key == key)


def _in_work(request: RequestKey) -> Any:
    own = _of(request.user, request.key)
    return and_(own, REQUEST_KEY.c.at == request.at, REQUEST_KEY.c.answer.is_(None))
