"""Users of the HTTP API: names, roles, and the digests of their tokens and sessions.

A token is 32 random bytes, and so is the ID of a session. The ledger holds only their SHA-256, so that
reading the database gives no access; a digest without salt suffices because neither can be guessed. A session
belongs to a token, and is valid as long as the token is. A user of single sign-on has a token that nothing
shows, until the user asks for another one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select, update

from orchestrator.errors import BadInput, NotAllowed, NotFound, WrongState
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import append
from orchestrator.ledger.people.user_records import ROLES, Role, User
from orchestrator.ledger.row_backup import keep, keeping, row_file
from orchestrator.ledger.tables import SERVICE_SESSION, SERVICE_USER

TOKEN_BYTES = 32
LIFETIME_SECONDS = 90 * 86_400.0
"""Default lifetime of a token."""

SESSION_SECONDS = 14 * 86_400.0
"""Maximum lifetime of a browser session."""

MOST_SESSIONS = 20
"""Maximum number of sessions of one token."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def add_user(
    ledger: Ledger, name: str, role: str, actor: str, *, lifetime: float | None = LIFETIME_SECONDS
) -> tuple[User, str]:
    """Add a user, or give a new token to a user without a valid one, who keeps the subject of single sign-on.

    Args:
        ledger: Ledger of the user.
        name: Lower-case letters, digits, `.`, `_` and `-`.
        role: One of `ROLES`.
        actor: Name of the admin, for the audit log.
        lifetime: Seconds until the token expires; None for never.

    Returns:
        The user and the token, which is not stored.

    Raises:
        BadInput: The name or the role is not valid, or the user has a valid token.
    """
    chosen = _checked(name, role)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    now = ledger.now()
    user = User(name, chosen, now, None if lifetime is None else now + lifetime)

    def write(connection: Connection) -> User:
        known = _find(connection, name)
        if known is not None and known.is_active(now):
            remedy = f"Revoke it first: `user revoke {name}`."
            raise BadInput(name, "already has a valid token", "", remedy)
        added = user if known is None else replace(user, subject=known.subject)
        _replace(connection, added, digest(token))
        append(connection, now, actor, "user add", name, role=role)
        return added

    return _changed(ledger, write), token


def revoke_user(ledger: Ledger, name: str, actor: str) -> User:
    """Revoke the token of a user, with immediate effect.

    Args:
        ledger: Ledger of the user.
        name: Name of the user.
        actor: Name of the admin, for the audit log.

    Raises:
        NotFound: The user does not exist.
    """

    def write(connection: Connection) -> User:
        if _find(connection, name) is None:
            raise NotFound(name, "is not a user", "", "See `user list`.")
        of_user = (SERVICE_USER.c.name == name) & SERVICE_USER.c.revoked_at.is_(None)
        connection.execute(update(SERVICE_USER).where(of_user).values(revoked_at=ledger.now()))
        append(connection, ledger.now(), actor, "user revoke", name)
        revoked = _find(connection, name)
        assert revoked is not None
        return revoked

    return _changed(ledger, write)


def sign_on(ledger: Ledger, subject: str, name: str, role: Role, *, lifetime: float) -> tuple[User, str]:
    """Add the user of a subject of single sign-on, or renew its role and its token.

    A user keeps the name of the first sign-on, because it owns the user's sweeps. A valid token remains the
    same; an expired one does not become valid again.

    Args:
        ledger: Ledger of the user.
        subject: Issuer and subject at the provider.
        name: Name that the provider gives; lower-case letters, digits, `.`, `_` and `-`.
        role: Role by the groups of the subject.
        lifetime: Seconds until the token expires.

    Returns:
        The user and the digest of the token.

    Raises:
        BadInput: The name is not valid.
        NotAllowed: Another account has the name, or an admin has revoked the user.
    """
    now = ledger.now()
    unknown_digest = digest(secrets.token_urlsafe(TOKEN_BYTES))
    used = unknown_digest

    def write(connection: Connection) -> User:
        nonlocal used
        row = connection.execute(_of_subject(subject)).mappings().one_or_none()
        known = None if row is None else _user(dict(row))
        if known is None:
            _checked(name, role)
            _refuse_taken(connection, name)
        if known is not None and known.revoked_at is not None:
            remedy = f"Ask an admin, who gives access again with `user add {known.name}`."
            raise NotAllowed(f"user {known.name}", "must not have been revoked", "a revoked user", remedy)
        is_valid = row is not None and known is not None and known.is_active(now)
        used = str(row["token_digest"]) if row is not None and is_valid else unknown_digest
        created_at = known.created_at if known is not None and is_valid else now
        own_name = name if known is None else known.name
        user = User(own_name, role, created_at, now + lifetime, subject=subject)
        _replace(connection, user, used)
        append(connection, now, own_name, "sign on", own_name, role=role)
        return user

    return _changed(ledger, write), used


def end_subject(ledger: Ledger, subject: str) -> None:
    """Expire the token and the sessions of a subject of single sign-on that has lost its role.

    Does nothing without a user of this subject. Unlike a revoked user, the subject may sign on again once
    it has a role.
    """
    row = ledger.query(lambda connection: connection.execute(_of_subject(subject)).mappings().one_or_none())
    if row is None:
        return
    known = _user(dict(row))

    def write(connection: Connection) -> User:
        now = ledger.now()
        own = (SERVICE_USER.c.subject == subject) & SERVICE_USER.c.revoked_at.is_(None)
        connection.execute(update(SERVICE_USER).where(own).values(expires_at=now))
        append(connection, now, known.name, "sign on without a role", known.name)
        ended = _find(connection, known.name)
        assert ended is not None
        return ended

    _changed(ledger, write)


def issue_token(ledger: Ledger, name: str) -> tuple[User, str]:
    """Replace the token of a user of single sign-on; the sessions of the user go on.

    Args:
        ledger: Ledger of the user.
        name: Name of the user.

    Returns:
        The user and the token, which is not stored. It expires when the last sign-on does.

    Raises:
        WrongState: The user is not one of single sign-on.
    """
    token = secrets.token_urlsafe(TOKEN_BYTES)

    def write(connection: Connection) -> User:
        row = connection.execute(select(SERVICE_USER).where(SERVICE_USER.c.name == name)).mappings().one()
        old, user = str(row["token_digest"]), replace(_user(dict(row)), created_at=ledger.now())
        if user.subject is None:
            must = "cannot replace its own token without single sign-on"
            raise WrongState(f"user {name}", must, "an account of this service", "Ask an admin for a token.")
        _replace(connection, user, digest(token))
        of_user = update(SERVICE_SESSION).where(SERVICE_SESSION.c.token_digest == old)
        connection.execute(of_user.values(token_digest=digest(token)))
        append(connection, ledger.now(), name, "user token", name)
        return user

    return _changed(ledger, write), token


def users(ledger: Ledger) -> list[User]:
    """Return all users by name, including those with revoked tokens."""
    return list(users_by_digest(ledger).values())


def users_by_digest(ledger: Ledger) -> dict[str, User]:
    """Return all users by the digest of their token, in the order of their names."""
    query = select(SERVICE_USER).order_by(SERVICE_USER.c.name)
    rows = ledger.query(lambda connection: list(connection.execute(query).mappings()))
    return {str(row["token_digest"]): _user(dict(row)) for row in rows}


def open_session(ledger: Ledger, token_digest: str, expires_at: float) -> tuple[str, float]:
    """Open a browser session, and return its ID and its expiry.

    If the token has more than `MOST_SESSIONS`, the one that expires first is ended.

    Args:
        ledger: Ledger of the user.
        token_digest: Digest of the user's token.
        expires_at: Expiry of the token, seconds since the epoch.
    """
    session, ends = secrets.token_urlsafe(TOKEN_BYTES), min(expires_at, ledger.now() + SESSION_SECONDS)
    columns, own = SERVICE_SESSION.c, SERVICE_SESSION.c.token_digest == token_digest

    def write(connection: Connection) -> None:
        tokens = select(SERVICE_USER.c.token_digest).where(SERVICE_USER.c.revoked_at.is_(None))
        over = (columns.expires_at < ledger.now()) | columns.token_digest.not_in(tokens)
        connection.execute(delete(SERVICE_SESSION).where(over))
        oldest_first = select(columns.digest).where(own).order_by(columns.expires_at)
        known = connection.execute(oldest_first).scalars().all()
        surplus = known[: max(0, len(known) - MOST_SESSIONS + 1)]
        connection.execute(delete(SERVICE_SESSION).where(columns.digest.in_(surplus)))
        row = {"digest": digest(session), "token_digest": token_digest, "expires_at": ends}
        connection.execute(insert(SERVICE_SESSION).values(**row))

    ledger.transact(write)
    return session, ends


def end_session(ledger: Ledger, session: str) -> None:
    """End the session with an ID, if it exists."""
    own = delete(SERVICE_SESSION).where(SERVICE_SESSION.c.digest == digest(session))
    ledger.transact(lambda connection: connection.execute(own))


def sessions(ledger: Ledger) -> dict[str, tuple[str, float]]:
    """Return the token's digest and the expiry of each session, by the digest of its ID."""
    rows = ledger.query(lambda connection: connection.execute(select(SERVICE_SESSION)).all())
    return {row.digest: (row.token_digest, row.expires_at) for row in rows}


def digest(token: str) -> str:
    """Return the SHA-256 of a token in hexadecimal digits."""
    return hashlib.sha256(token.encode()).hexdigest()


def _changed(ledger: Ledger, write: Callable[[Connection], User]) -> User:
    """Change the row of a user, and write the backup of a SQLite ledger after its commit."""

    def commit(connection: Connection, user: User) -> None:
        own = select(SERVICE_USER).where(SERVICE_USER.c.name == user.name)
        with keeping(ledger):
            row = connection.execute(own).mappings().one()
            if ledger.is_file:
                row_file(ledger.address, SERVICE_USER, user.name).unlink(missing_ok=True)
            connection.commit()
            if ledger.is_file:
                keep(ledger.address, SERVICE_USER, dict(row))

    written = ledger.transact(write, commit)
    ledger.flush()
    return written


def _checked(name: str, role: str) -> Role:
    if not NAME.fullmatch(name):
        must = (
            "must be 1 to 64 lower-case letters, digits, `.`, `_` and `-`, and begin with a letter or digit"
        )
        raise BadInput("name of a user", must, repr(name), "Choose another name, such as `ada`.")
    for known in ROLES:
        if role == known:
            return known
    raise BadInput("--role", f"must be one of {', '.join(ROLES)}", role, "Choose one of them.")


def _refuse_taken(connection: Connection, name: str) -> None:
    if _find(connection, name) is not None:
        got = "the name of another account"
        remedy = "Ask an admin: the accounts of a service and of a provider are never merged."
        raise NotAllowed(f"user {name}", "must be a new name at the first sign-on", got, remedy)


def _replace(connection: Connection, user: User, token_digest: str) -> None:
    connection.execute(delete(SERVICE_USER).where(SERVICE_USER.c.name == user.name))
    connection.execute(insert(SERVICE_USER).values(**vars(user), token_digest=token_digest))


def _of_subject(subject: str) -> Select[Any]:
    return select(SERVICE_USER).where(SERVICE_USER.c.subject == subject)


def _find(connection: Connection, name: str) -> User | None:
    row = connection.execute(select(SERVICE_USER).where(SERVICE_USER.c.name == name)).mappings().one_or_none()
    return None if row is None else _user(dict(row))


def _user(row: dict[str, Any]) -> User:
    del row["token_digest"]
    return User(**row)
