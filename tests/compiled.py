"""Compiled programs of the tests, kept between runs under .venv."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
import zlib
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

KEPT = Path(sys.prefix) / "compilations"
MEBIBYTES = 2048
"""Largest total size; the entries that were used least recently are deleted first."""

DAYS = 14
"""Programs for another processor, jaxlib or set of flags are deleted after this time without use."""

_CHECKED = ".checked"
"""File whose modification time says up to when the entries of its folder have been checked."""

_SECONDS_OF_A_WRITE = 60.0
"""Entries younger than this may still be being written, by another run."""


def folder(flags: str, kept: Path = KEPT) -> Path:
    """Return the folder of the programs that this processor, jaxlib and these flags of XLA compile."""
    described = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    features = re.search(r"^(?:flags|Features)\s*:(.*)$", described, re.MULTILINE)
    parts = (version("jaxlib"), version("jax"), features.group(1) if features else "", flags)
    path = kept / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    path.mkdir(parents=True, exist_ok=True)
    return path


def clean(current: Path, mebibytes: float = MEBIBYTES) -> None:
    """Delete incomplete, superseded and, above a size, the least recently used entries.

    A test that kills a process may leave a partly written entry, because JAX does not write them atomically.
    """
    checked, now = current / _CHECKED, time.time()
    since = checked.stat().st_mtime if checked.exists() else 0.0
    until = now - _SECONDS_OF_A_WRITE
    for entry in _entries(current):
        if since <= entry.stat().st_mtime < until and not _complete(entry):
            entry.unlink(missing_ok=True)
    checked.touch()
    os.utime(checked, (until, until))
    for other in current.parent.iterdir():
        used = max((path.stat().st_mtime for path in (other, *other.glob(_CHECKED))), default=now)
        if other != current and used < now - DAYS * 86_400:
            shutil.rmtree(other, ignore_errors=True)
    total = 0
    for entry in sorted(_entries(current), key=_last_used, reverse=True):
        total += entry.stat().st_size
        if total > mebibytes * 2**20:
            entry.unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file() and path.name != _CHECKED]


def _last_used(entry: Path) -> float:
    facts = entry.stat()
    return max(facts.st_atime, facts.st_mtime)


def _complete(entry: Path) -> bool:
    facts = entry.stat()
    content = entry.read_bytes()
    os.utime(entry, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # a check is not a use
    with suppress(zlib.error):
        zlib.decompress(content)
        return True
    return False
