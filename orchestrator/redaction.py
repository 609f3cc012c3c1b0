"""Removal of secrets: they must not reach logs, errors or the ledger."""

from __future__ import annotations

import os
import re

_USER_OF_URL = re.compile(r"(?<=://)[^/?#\s]*@")
_NAMED_SECRET = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|KEY$", re.IGNORECASE)
_SHORTEST = 8
"""Characters of the shortest secret; shorter values would be removed from ordinary words."""


def redacted(text: str) -> str:
    """Return a text without the users and passwords of addresses, and without secrets of the environment."""
    for secret in _secrets():
        text = text.replace(secret, "***")
    return _USER_OF_URL.sub("", text)


def _secrets() -> list[str]:
    """Return the values of variables that are named like a secret; paths are left out, they name a file."""
    named = [value for name, value in os.environ.items() if _NAMED_SECRET.search(name)]
    return [value for value in named if len(value) >= _SHORTEST and not value.startswith("/")]
