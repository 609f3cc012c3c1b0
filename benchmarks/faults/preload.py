"""Build `failing.c`, a library that makes system calls fail and shifts the clock."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("failing.c")


def library(folder: Path) -> Path:
    """Return the path of the library, for LD_PRELOAD; compile it if necessary."""
    built = folder / "failing.so"
    if not built.exists():
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
    return built
