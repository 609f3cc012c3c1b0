"""Parse Python source, in any number of threads."""

from __future__ import annotations

import ast
import io
import threading
import tokenize
from pathlib import Path

MOST_BYTES = 16 << 20
"""Of a file of source; more are not read."""

_PARSING = threading.Lock()


def parsed(source: str | bytes, file: str = "<unknown>") -> ast.Module:
    """Return the syntax tree of a module; one thread parses at a time.

    CPython 3.11 keeps one depth of recursion for all threads. If another thread parses while garbage is
    collected, both fail with `SystemError: AST constructor recursion depth mismatch`.

    Args:
        source: of the module.
        file: name of the module in a `SyntaxError`.

    Raises:
        SyntaxError: it is not Python.
    """
    with _PARSING:
        return ast.parse(source, file)


def text_of(file: Path) -> str:
    """Return the text of a module as Python reads it: with a byte order mark, or in the encoding it declares.

    Raises:
        OSError: it cannot be read.
        SyntaxError: it is not in its encoding, or declares an unknown one.
        ValueError: it is no file, or too long for source.
    """
    if not file.is_file():
        raise ValueError(f"{file} is no file")
    with file.open("rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{file} has more than {MOST_BYTES} bytes")
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return content.decode(encoding)
