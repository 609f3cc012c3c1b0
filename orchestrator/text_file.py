"""Files that users name: reading text, and checking that an output can be written."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from orchestrator.errors import BadInput
from trainables.sources import content_of

BIGGEST = 256_000
"""Bytes of the longest file that is read."""

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TAB = re.compile(r"^ *\t", re.MULTILINE)
_REMEDY = "Name a readable YAML file."


def shown(path: Path) -> str:
    """Return a path as one printable line."""
    return str(path).encode("unicode_escape").decode()[:200]


def read_text(path: Path) -> str:
    """Return the file's text; a byte order mark and any line ends are accepted.

    Raises:
        BadInput: It is missing, unreadable, too long, empty or not UTF-8 text indented by spaces.
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
        raise BadInput(where, "is empty", "", "Write its content.")
    _refuse_found(_CONTROL, text, where, "must be plain text", "Remove the character.")
    _refuse_found(_TAB, text, where, "must be indented by spaces", "Replace the tab by spaces.")
    return text


def check_output(file: Path) -> None:
    """Check that a file which a person has named can be written.

    Raises:
        BadInput: Its folder does not exist, or it is a folder itself.
    """
    if file.is_dir():
        raise BadInput(str(file), "must be a file to write", "a folder", "Name a file in it.")
    if not file.parent.is_dir():
        remedy = f"Create {file.parent} first, or name a file elsewhere."
        raise BadInput(str(file), f"cannot be written: the folder {file.parent} does not exist", "", remedy)


def _refuse_found(pattern: re.Pattern[str], text: str, where: str, must: str, remedy: str) -> None:
    if match := pattern.search(text):
        line = text.count("\n", 0, match.start()) + 1
        raise BadInput(f"{where}:{line}", must, repr(match[0][-1]), remedy)


def _bytes(path: Path) -> bytes:
    where = shown(path)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise BadInput(where, "must be a file", "a directory", _REMEDY)
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(where, "must be a regular file", "a device or a pipe", _REMEDY)
        if status.st_size > BIGGEST:
            raise BadInput(where, f"must be at most {BIGGEST:,} bytes", f"{status.st_size:,}", _REMEDY)
        return content_of(path, BIGGEST)
    except FileNotFoundError:
        raise BadInput(where, "does not exist", "", _REMEDY) from None
    except PermissionError:
        raise BadInput(where, "must be readable", "permission denied", "Run `chmod u+r` on it.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(where, "must be a readable file", reason, _REMEDY) from None
