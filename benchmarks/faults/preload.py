"""The libraries that are preloaded: one makes system calls fail and shifts the clock, one records calls."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping
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


class Clock:
    """A time of day for processes that are started with `environment`; those that run see each step of it.

    Args:
        folder: Folder of the library and of the clock's file.
        name: Name of the clock.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._library, self._file = library(folder), folder / f"{name}.clock"
        self._file.write_bytes(struct.pack("@l", 0))

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables under which a process and its descendants read this clock."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_SHIFT": str(self._file)}

    def shift(self, seconds: int) -> None:
        """Set the clock this many seconds ahead of the machine's; negative values are behind it."""
        with self._file.open("r+b") as file:  # in place: processes have mapped the file
            file.write(struct.pack("@l", seconds))
