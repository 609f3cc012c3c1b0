"""Users are in the backup of a SQLite ledger; a revoked token stays revoked, whatever is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import Damaged
from orchestrator.ledger import row_backup
from orchestrator.ledger.backup import row_folder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people import users
from orchestrator.ledger.tables import SERVICE_USER
from orchestrator.upkeep.recovery import recover


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sweeps.db'}"


def lose_database(ledger: Ledger) -> None:
    ledger.close()
    file = Path(str(ledger.address.database))
    for path in file.parent.glob(f"{file.name}*"):
        path.unlink()


def test_a_rebuilt_ledger_has_every_user(url: str) -> None:
    """Nothing but the backup is left: tokens stay valid, and revoked ones invalid."""
    ledger = Ledger.open(url)
    _, token = users.add_user(ledger, "ada", "member", "grace")
    users.add_user(ledger, "bob", "viewer", "grace")
    users.revoke_user(ledger, "bob", "grace")
    before = users.users_by_digest(ledger)
    files = row_folder(ledger.address, SERVICE_USER).iterdir()
    assert token not in "".join(file.read_text() for file in files)
    lose_database(ledger)
    with pytest.raises(Damaged, match="is empty, but its backup is not"):
        Ledger.open(url)
    rebuilt = recover(url)
    assert (rebuilt.users, rebuilt.lost_users) == (["ada", "bob"], [])
    again = Ledger.open(url)
    assert users.users_by_digest(again) == before
    assert not next(user for user in before.values() if user.name == "bob").is_active(again.now())
    again.close()


def test_a_damaged_file_loses_its_own_user_alone(url: str) -> None:
    ledger = Ledger.open(url)
    for name in ("ada", "bob"):
        users.add_user(ledger, name, "member", "grace")
    file = row_folder(ledger.address, SERVICE_USER) / "ada.json"
    file.write_bytes(file.read_bytes().replace(b"member", b"admin"))
    lose_database(ledger)
    rebuilt = recover(url)
    assert (rebuilt.users, rebuilt.lost_users) == (["bob"], ["ada"])


def test_a_backup_that_fails_never_brings_a_revoked_token_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full after the commit: the backup lacks the user instead of having the old token."""
    ledger = Ledger.open(url)
    users.add_user(ledger, "ada", "member", "grace")
    users.add_user(ledger, "bob", "member", "grace")
    monkeypatch.setattr(users, "keep", lambda *_: None)
    users.revoke_user(ledger, "ada", "grace")
    assert [file.stem for file in row_backup.row_files(ledger.address, SERVICE_USER)] == ["bob"]
    lose_database(ledger)
    assert recover(url).users == ["bob"]
