"""The audit log: which user asked for which change of a sweep, an owner or another user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, insert, select

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.idempotency import RequestKey, complete
from orchestrator.ledger.tables import AUDIT

COMMAND_LINE = "command line"
"""The actor of what was not asked for over HTTP."""

MOST_ENTRIES = 1_000
"""Most entries that are read at once."""


@dataclass(frozen=True)
class AuditEntry:
    """One change that a user asked for.

    Attributes:
        seq: rises from one entry to the next.
        at: when it was asked for, seconds since the epoch.
        actor: name of the user, or `COMMAND_LINE`.
        action: what was asked for, such as `stop`.
        target: what it concerns: the id of a sweep, or the name of an owner or a user.
        detail: further values, without secrets.
    """

    seq: int
    at: float
    actor: str
    action: str
    target: str
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """Who asks for a change; the function that makes the change writes it in the same transaction.

    Attributes:
        actor: name of the user.
        action: what the user asks for.
        target: what it concerns.
        detail: plain JSON values, without secrets.
        request: the key of the request, whose answer is written with the change; None without a key.
    """

    actor: str
    action: str
    target: str
    detail: Mapping[str, Any] = field(default_factory=dict)
    request: RequestKey | None = None

    def note(self, connection: Connection, at: float, answer: Mapping[str, Any] | None = None) -> None:
        """Write the entry, and the answer to a request with a key, in the transaction of the change.

        Args:
            connection: of the transaction.
            at: time of the change, seconds since the epoch.
            answer: what the user receives; needed for a request with a key.

        Raises:
            Busy: the request took so long that it may have been made again.
        """
        append(connection, at, self.actor, self.action, self.target, **self.detail)
        if self.request is not None:
            assert answer is not None, "a request with a key must be answered in its transaction"
            complete(connection, self.request, answer)


def append(connection: Connection, at: float, actor: str, action: str, target: str, **detail: Any) -> None:
    """Write one entry in the transaction of the change that it describes.

    Args:
        connection: of the transaction.
        at: time of the change, seconds since the epoch.
        actor: name of the user.
        action: what the user asks for.
        target: what it concerns.
        **detail: plain JSON values, without secrets.
    """
    row = {"at": at, "actor": actor, "action": action, "target": target, "detail": json.dumps(detail)}
    connection.execute(insert(AUDIT).values(**row))


def entries(
    ledger: Ledger, *, before: int | None = None, target: str | None = None, limit: int = MOST_ENTRIES
) -> list[AuditEntry]:
    """Return entries of the audit log, the newest first.

    Args:
        ledger: of the sweeps.
        before: only entries with a smaller `seq`; None for the newest.
        target: only entries about this sweep, owner or user; None for all.
        limit: most entries to return.
    """
    query = select(AUDIT).order_by(AUDIT.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(AUDIT.c.seq < before)
    if target is not None:
        query = query.where(AUDIT.c.target == target)

    def read() -> list[AuditEntry]:
        with ledger.reader() as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
        return [AuditEntry(**{**row, "detail": json.loads(row["detail"])}) for row in rows]

    return ledger.retried(read)
