"""Users, their roles, their notes, and the entries of the audit log, as plain data.

This module does not import SQLAlchemy, because the client has it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

Role = Literal["viewer", "member", "admin"]

ROLES: tuple[Role, ...] = get_args(Role)
"""Roles, from least to most privileged."""


@dataclass(frozen=True)
class User:
    """A user of the HTTP API. Times are seconds since the epoch.

    Attributes:
        name: Name, which is also that of the owner of the user's sweeps.
        role: Role, which decides the permissions.
        created_at: Creation time of the token.
        expires_at: Expiry of the token, or None.
        revoked_at: Revocation of the token, or None.
        subject: Issuer and subject at the provider of single sign-on, or None for an account of this service.
    """

    name: str
    role: Role
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    subject: str | None = None

    def is_active(self, now: float) -> bool:
        """Return True if the token of the user is valid at a time."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True)
class Note:
    """What users have noted about a sweep or a trial.

    Attributes:
        target: ID of the sweep, or key of the trial.
        text: Note in Markdown; '' without one.
        tags: Tags in alphabetical order.
        favourite: Whether it is marked as a favourite.
        author: Name of the user who made the last change, or `command line`.
        at: Time of the last change, seconds since the epoch.
    """

    target: str
    text: str
    tags: Sequence[str]
    favourite: bool
    author: str
    at: float


Shelf = Literal["archived", "deleted"]
"""Place of a sweep that lists leave out; a deleted one is removed by the next garbage collection."""


@dataclass(frozen=True)
class Shelved:
    """A sweep that a user has archived or deleted.

    Attributes:
        sweep_id: ID of the sweep.
        shelf: `archived` or `deleted`.
        actor: Name of the user, or `command line`.
        at: Time of the change, seconds since the epoch.
    """

    sweep_id: str
    shelf: Shelf
    actor: str
    at: float


@dataclass(frozen=True)
class AuditEntry:
    """One requested change.

    Attributes:
        seq: Number that rises from one entry to the next.
        at: Time of the request, seconds since the epoch.
        actor: Name of the user, or `command line`.
        action: Name of the change, such as `stop`.
        target: ID of a sweep, or name of an owner or a user.
        detail: Further values, without secrets.
    """

    seq: int
    at: float
    actor: str
    action: str
    target: str
    detail: Mapping[str, Any]
