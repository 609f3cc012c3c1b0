"""The secret that every process of a Ray cluster must present: a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def ensure_token(file: Path) -> Path:
    """Return the path of a token file; create the file, with mode 0600, if it is missing."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(secrets.token_hex(32))
    return file
