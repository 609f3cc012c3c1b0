"""The backup of the users of a SQLite ledger: one file for each, beside those of the submissions.

    <sweeps>.backup/users/<name>.json      <digest> <columns of the row>

A file is deleted before its row changes and written again after the commit. A backup that has fallen behind
thus lacks a user, who is added again, and never brings back a token that was revoked.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL

from orchestrator.ledger.backup import user_folder
from orchestrator.ledger.submission_backup import Row, keep_row
from trainables.durable import make_folder


def forget(address: URL, name: str) -> None:
    """Delete the file of a user whose row is about to change.

    Raises:
        OSError: the file cannot be deleted, so that the row must not change.
    """
    _file(address, name).unlink(missing_ok=True)


def keep_user(address: URL, row: Row) -> None:
    """Write the file of a user, durably, after the commit of the row."""
    make_folder(user_folder(address))
    keep_row(_file(address, str(row["name"])), row)


def kept_users(address: URL) -> list[Path]:
    """Return the backup files of all users, damaged ones included."""
    return sorted(user_folder(address).glob("*.json"))


def _file(address: URL, name: str) -> Path:
    return user_folder(address) / f"{name}.json"
