"""Parse Python source, in any number of threads."""

from __future__ import annotations

import ast
import threading

_PARSING = threading.Lock()


def parsed(source: str | bytes, file: str = "<unknown>") -> ast.Module:
    """Return the syntax tree of a module; one thread parses at a time.

    CPython 3.11 keeps one depth of recursion for all threads. If another thread parses while garbage is
    collected, both fail with `SystemError: AST constructor recursion depth mismatch`.

    Args:
        source: Source of the module.
        file: Name of the module in a `SyntaxError`.

    Raises:
        SyntaxError: The source is not valid Python.
    """
    with _PARSING:
        return ast.parse(source, file)
