"""Addresses of SQLite files."""

from __future__ import annotations

from pathlib import Path


def sqlite_url(file: Path) -> str:
    """Return the SQLAlchemy URL of a SQLite file.

    Only the characters that would end the path are quoted. SQLAlchemy reads any quoted character, but MLflow
    creates the folder of the path as it is written: a quoted space would leave a stray folder behind.
    """
    path = str(file)
    for character in "%?#":
        path = path.replace(character, f"%{ord(character):02X}")
    return f"sqlite:///{path}"
