"""Users of the HTTP API and the audit log, in both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people import audit, users
from orchestrator.ledger.queue.queue_settings import ask_to_stop
from orchestrator.ledger.tables import AUDIT, SERVICE_USER


def test_a_token_names_its_user_and_is_not_stored(ledger: Ledger) -> None:
    user, token = users.add_user(ledger, "ada", "member", "grace")
    assert users.users_by_digest(ledger) == {users.digest(token): user}
    with ledger.reader() as connection:
        stored = [*connection.execute(select(SERVICE_USER)), *connection.execute(select(AUDIT))]
    assert token not in repr(stored)
    assert len(token) >= 43, "32 random bytes in base64"


def test_a_token_expires(ledger: Ledger) -> None:
    user, _ = users.add_user(ledger, "ada", "viewer", "grace", lifetime=60.0)
    assert user.is_active(user.created_at + 59.0)
    assert not user.is_active(user.created_at + 60.0)
    lasting, _ = users.add_user(ledger, "bob", "viewer", "grace", lifetime=None)
    assert lasting.is_active(user.created_at + 1e9)


def test_a_revoked_user_gets_a_new_token(ledger: Ledger) -> None:
    _, first = users.add_user(ledger, "ada", "member", "grace")
    with pytest.raises(BadInput, match="already has a valid token"):
        users.add_user(ledger, "ada", "admin", "grace")
    assert not users.revoke_user(ledger, "ada", "grace").is_active(ledger.now())
    user, second = users.add_user(ledger, "ada", "admin", "grace")
    assert users.users_by_digest(ledger) == {users.digest(second): user}
    assert user.role == "admin"
    assert first != second


@pytest.mark.parametrize(
    ("name", "role", "match"),
    [("Ada", "member", "lower-case"), ("", "member", "1 to 64"), ("ada", "root", "one of")],
)
def test_wrong_names_and_roles_are_refused(ledger: Ledger, name: str, role: str, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        users.add_user(ledger, name, role, "grace")
    assert users.users(ledger) == []


def test_an_unknown_user_is_not_revoked(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="is not a user"):
        users.revoke_user(ledger, "ada", "grace")
    assert audit.entries(ledger) == []


def test_the_audit_log_holds_every_change_in_order(ledger: Ledger) -> None:
    users.add_user(ledger, "ada", "member", "grace")
    users.revoke_user(ledger, "ada", "grace")
    stopped = audit.Asked("ada", "stop", "listops-1", {"reason": "tired"})
    ask_to_stop(ledger, "listops-1", asked=stopped)
    newest, *older = audit.entries(ledger)
    assert (newest.actor, newest.action, newest.target, newest.detail) == (
        "ada",
        "stop",
        "listops-1",
        {"reason": "tired"},
    )
    assert [entry.action for entry in older] == ["user revoke", "user add"]
    assert audit.entries(ledger, before=newest.seq, limit=1) == older[:1]
