"""Build `failing.c`, which breaks what a process asks of its system."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("failing.c")


def library(folder: Path) -> Path:
    """Return the library, to be named in LD_PRELOAD."""
    built = folder / "failing.so"
    if not built.exists():
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
    return built
