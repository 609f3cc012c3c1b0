"""Removal of secrets: they must not reach logs, errors or the ledger."""

from __future__ import annotations

import os
import re
from pathlib import Path

_USER_OF_URL = re.compile(r"(?<=://)[^/?#\s]*@")
_NAMED_SECRET = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|KEY$", re.IGNORECASE)
_NAMED_PATH = re.compile(r"(PATH|FILE|DIR|FOLDER)$", re.IGNORECASE)
_SHORTEST = 8
"""Characters of the shortest secret; shorter values would be removed from ordinary words."""


def redacted(text: str) -> str:
    """Return a text without the users and passwords of addresses, and without secrets of the environment."""
    for secret in _secrets():
        text = text.replace(secret, "***")
    return _USER_OF_URL.sub("", text)


def _secrets() -> list[str]:
    """Return the values of variables that are named like a secret; a path to one is not secret itself."""
    named = {name: value for name, value in os.environ.items() if _NAMED_SECRET.search(name)}
    return [value for name, value in named.items() if len(value) >= _SHORTEST and not _is_path(name, value)]


def _is_path(name: str, value: str) -> bool:
    # A secret in base64 can begin with a slash too.
    return bool(_NAMED_PATH.search(name)) or (value.startswith("/") and Path(value).exists())
