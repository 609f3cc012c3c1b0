"""Audit log: the changes of sweeps, owners and users, with the user who requested each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, insert, select

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.idempotency import RequestKey, complete
from orchestrator.ledger.people.user_records import AuditEntry
from orchestrator.ledger.tables import AUDIT

COMMAND_LINE = "command line"
"""The actor of a change that was not requested over HTTP."""

MOST_ENTRIES = 1_000
"""Maximum number of entries that are read at once."""


@dataclass(frozen=True)
class Asked:
    """Entry for the audit log, written in the transaction of the change that a user requests.

    Attributes:
        actor: Name of the user.
        action: Name of the change.
        target: ID of a sweep, or name of an owner or a user.
        detail: Plain JSON values, without secrets.
        request: Idempotency key of the request, whose answer is written with the change, if any.
    """

    actor: str
    action: str
    target: str
    detail: Mapping[str, Any] = field(default_factory=dict)
    request: RequestKey | None = None

    def note(self, connection: Connection, at: float, answer: Mapping[str, Any] | None = None) -> None:
        """Write the entry, and the answer to a request with an idempotency key.

        Args:
            connection: Connection of the transaction.
            at: Time of the change, seconds since the epoch.
            answer: Answer to the user; required with an idempotency key.

        Raises:
            Busy: The request took so long that it may have been repeated.
        """
        append(connection, at, self.actor, self.action, self.target, **self.detail)
        if self.request is not None:
            assert answer is not None, "a request with a key must be answered in its transaction"
            complete(connection, self.request, answer)


def append(connection: Connection, at: float, actor: str, action: str, target: str, **detail: Any) -> None:
    """Write an entry with the fields of `AuditEntry`, in the transaction of its change."""
    row = {"at": at, "actor": actor, "action": action, "target": target, "detail": json.dumps(detail)}
    connection.execute(insert(AUDIT).values(**row))


def entries(
    ledger: Ledger,
    *,
    before: int | None = None,
    target: str | None = None,
    action: str | None = None,
    limit: int = MOST_ENTRIES,
) -> list[AuditEntry]:
    """Return entries of the audit log, the newest first.

    Args:
        ledger: Ledger with the log.
        before: Upper bound of `seq`, exclusive; None for the newest entries.
        target: Sweep, owner or user of the entries; None for all.
        action: Name of the change; None for all.
        limit: Maximum number of entries.
    """
    query = select(AUDIT).order_by(AUDIT.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(AUDIT.c.seq < before)
    if target is not None:
        query = query.where(AUDIT.c.target == target)
    if action is not None:
        query = query.where(AUDIT.c.action == action)
    rows = ledger.query(lambda connection: list(connection.execute(query).mappings()))
    return [AuditEntry(**{**row, "detail": json.loads(row["detail"])}) for row in rows]
