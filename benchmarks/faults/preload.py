"""Build the libraries that are preloaded: one makes system calls fail, one records them."""

from __future__ import annotations

import subprocess
from pathlib import Path

FAILING = Path(__file__).with_name("failing.c")
RECORDING = Path(__file__).with_name("recording.c")


def library(folder: Path, source: Path = FAILING) -> Path:
    """Return the path of a library, for LD_PRELOAD; compile it if necessary."""
    built = folder / source.with_suffix(".so").name
    if not built.exists():
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(built), str(source), "-ldl"]
        subprocess.run(command, check=True)
    return built
