"""The token without which a Ray of ours answers nobody: a file for its owner's eyes only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def made(file: Path) -> Path:
    """Return the token's file, made if it is missing."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(secrets.token_hex(32))
    return file
