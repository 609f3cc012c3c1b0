"""What is written nowhere: the user names and passwords of addresses, and the secrets of the environment."""

from __future__ import annotations

import os
import re

_USER_OF_URL = re.compile(r"(?<=://)[^/?#\s]*@")
_NAMED_SECRET = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|KEY$", re.IGNORECASE)
_SHORTEST = 8
"""Characters of a secret; shorter values would be struck out of ordinary words."""


def redacted(text: str) -> str:
    """Return a text that may be kept and shown: without any secret that this process knows."""
    for secret in _secrets():
        text = text.replace(secret, "***")
    return _USER_OF_URL.sub("", text)


def _secrets() -> list[str]:
    """Return the values of variables that are named like a secret; a path only says where one is kept."""
    named = [value for name, value in os.environ.items() if _NAMED_SECRET.search(name)]
    return [value for value in named if len(value) >= _SHORTEST and not value.startswith("/")]
