"""What another account of this machine can do with files: tested as that account."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

NOBODY = 65_534
"""The user and the group of an account without rights, on every Linux."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which can become another account")

_REACHED = """
for path in "$@"; do
    ls "$path/" >/dev/null 2>&1 && echo "sees $path"
    cat "$path" >/dev/null 2>&1 && echo "reads $path"
    (echo 127.0.0.1:9 >"$path") 2>/dev/null && echo "writes $path"
done
exit 0
"""


def reached(*paths: Path) -> list[str]:
    """Return what another account can do: see what is in a folder, read or write a file."""
    done = subprocess.run(
        ["/bin/sh", "-c", _REACHED, "sh", *map(str, paths)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=(),
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
