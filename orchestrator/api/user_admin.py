"""Users of the HTTP API of a service: add, list and revoke them, and read the audit log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from orchestrator.api.workspace import Workspace
from orchestrator.driver import preflight
from orchestrator.driver.admission import current_owner
from orchestrator.errors import BadInput, Refusal
from orchestrator.ledger.people import audit
from orchestrator.ledger.people import users as ledger_users
from orchestrator.ledger.people.audit import COMMAND_LINE
from orchestrator.ledger.people.user_records import ROLES, AuditEntry, Role, User
from orchestrator.ledger.people.users import LIFETIME_SECONDS

__all__ = [
    "DAYS",
    "ROLES",
    "AuditEntry",
    "Role",
    "User",
    "add",
    "audit_log",
    "revoke",
    "signed_in_by_link",
    "users",
]

DAYS = LIFETIME_SECONDS / 86_400.0
"""Days that a token is valid by default."""

LONGEST_DAYS = 36_500
"""Days that a token with an end may be valid; the time of a much later end cannot be printed."""


def add(
    name: str,
    role: str = "member",
    *,
    days: float = DAYS,
    actor: str = COMMAND_LINE,
    root: str | Path | None = None,
) -> tuple[User, str]:
    """Add a user; return the user and the token, which cannot be read again.

    Args:
        name: Lower-case letters, digits, `.`, `_` and `-`; the user's sweeps run in this name.
        role: `viewer`, `member` or `admin`.
        days: Days until the token expires; infinity for never.
        actor: User recorded in the audit log.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The name, the role or the days are not valid, or the user has a valid token.
    """
    if not (0 < days <= LONGEST_DAYS or days == math.inf):
        must = f"must be greater than 0 and at most {LONGEST_DAYS:,}, or `inf`"
        raise BadInput("--days", must, f"{days:g}", "Write a number of days, or `inf`.")
    workspace = Workspace.at(root)
    preflight.check_paths(workspace.paths)
    workspace.paths.create()
    lifetime = days * 86_400.0 if days < math.inf else None
    with workspace.ledger(create=True) as ledger:
        return ledger_users.add_user(ledger, name, role, actor, lifetime=lifetime)


def signed_in_by_link(root: str | Path | None = None) -> str | None:
    """Return the name of this account as a user, or None if its token was revoked or has expired.

    An account that has no name, or one that no user may have, is no user either; nor is any while the ledger
    cannot be read.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
    """
    try:
        name = current_owner()
        with Workspace.at(root).ledger(create=True) as ledger:
            known = {user.name: user for user in ledger_users.users(ledger)}.get(name)
            is_valid = known is None or known.is_active(ledger.now())
    except Refusal:
        return None
    return name if is_valid and ledger_users.NAME.fullmatch(name) else None


def revoke(name: str, *, actor: str = COMMAND_LINE, root: str | Path | None = None) -> User:
    """Revoke the token of a user; return the user.

    Args:
        name: Name of the user.
        actor: User recorded in the audit log.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: There is no ledger, or no such user.
    """
    with Workspace.at(root).ledger() as ledger:
        return ledger_users.revoke_user(ledger, name, actor)


def users(*, root: str | Path | None = None) -> Sequence[User]:
    """Return all users by name, those with revoked tokens included.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: There is no ledger.
    """
    with Workspace.at(root).ledger() as ledger:
        return ledger_users.users(ledger)


def audit_log(
    *, before: int | None = None, limit: int = audit.MOST_ENTRIES, root: str | Path | None = None
) -> Sequence[AuditEntry]:
    """Return which user asked for which change, the newest first.

    Args:
        before: Only entries with a smaller `seq`; None for the newest.
        limit: Maximum number of entries.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: There is no ledger.
    """
    with Workspace.at(root).ledger() as ledger:
        return audit.entries(ledger, before=before, limit=limit)
