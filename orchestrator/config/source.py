"""The bytes of a search-space file as text, or one line about why they are none."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from orchestrator.errors import BadInput

BIGGEST = 256_000
"""Bytes of the longest file that is read."""

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TAB = re.compile(r"^ *\t", re.MULTILINE)
_REMEDY = "Name a YAML file, such as search_spaces/retrieval.yaml."


def shown(path: Path) -> str:
    """Return a path as one line of an error shows it, whatever characters it has."""
    return str(path).encode("unicode_escape").decode()[:200]


def read_text(path: Path) -> str:
    """Return the file's text; a byte order mark and any line ends are fine.

    Raises:
        BadInput: it is missing, unreadable, too long, empty or not UTF-8 text indented by spaces.
    """
    where, data = shown(path), _bytes(path)
    if data.startswith(_UTF16):
        raise BadInput(where, "must be UTF-8 text", "UTF-16", "Save it as UTF-8.")
    if b"\x00" in data:
        raise BadInput(where, "must be UTF-8 text", "a binary file", _REMEDY)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        got = f"the byte 0x{data[error.start]:02x}"
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{where}:{line}", "must be UTF-8 text", got, "Save it as UTF-8.") from None
    if not text.strip():
        raise BadInput(where, "must hold a search space", "an empty file", "Begin with `task: retrieval`.")
    _refuse_found(_CONTROL, text, where, "must be plain text", "Take the character out.")
    _refuse_found(_TAB, text, where, "must be indented by spaces", "Replace the tab by spaces.")
    return text


def _refuse_found(pattern: re.Pattern[str], text: str, where: str, must: str, remedy: str) -> None:
    if found := pattern.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise BadInput(f"{where}:{line}", must, repr(found[0][-1]), remedy)


def _bytes(path: Path) -> bytes:
    where = shown(path)
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise BadInput(where, "must be a file", "a directory", _REMEDY)
        if not stat.S_ISREG(found.st_mode):
            raise BadInput(where, "must be a regular file", "a device or a pipe", _REMEDY)
        if found.st_size > BIGGEST:
            raise BadInput(where, f"must be at most {BIGGEST:,} bytes", f"{found.st_size:,}", _REMEDY)
        return path.read_bytes()
    except FileNotFoundError:
        raise BadInput(where, "must exist", "no such file", _REMEDY) from None
    except PermissionError:
        raise BadInput(where, "must be readable", "permission denied", "Make it so: chmod u+r.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(where, "must be a readable file", reason, _REMEDY) from None
