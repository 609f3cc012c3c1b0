"""Files and folders that survive a loss of power."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

DIGITS = 12
"""Hexadecimal digits of a digest in the name of a checkpoint's folder."""


def make_folder(folder: Path) -> None:
    """Create a folder and its parents unless they exist, and flush their names to disk.

    Another process may have created some of them just now, and not have flushed them yet, so those that exist
    are flushed too. Only a folder that is in use is left alone: call this before anything is put into it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with os.scandir(folder) as entries:
        if any(entries):
            return
    device = folder.stat().st_dev
    for path in folder.absolute().parents:
        if path.stat().st_dev != device:
            return
        with suppress(PermissionError):  # it belongs to another account, so it is not new
            flush_folder(path)


def replace_file(file: Path, content: bytes) -> None:
    """Replace the content of a file, or create it, atomically, even if the power fails.

    Raises:
        OSError: The disk is full or fails; the old content remains.
    """
    fresh = file.with_suffix(".new")
    with fresh.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(file)
    flush_folder(file.parent)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to disk; without it, a rename may be lost in a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
