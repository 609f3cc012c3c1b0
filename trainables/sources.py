"""The code of a user's trainable on disk: its files, a digest that reveals changes, and its syntax trees."""

from __future__ import annotations

import ast
import errno
import hashlib
import io
import os
import stat
import threading
import tokenize
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

NO_CODE = frozenset({"__pycache__", "artifacts", "data", "mlruns", "node_modules", "runs", "site-packages"})
"""Names of folders without code of the user; hidden folders and virtual environments have none either."""

EXPORTED = ("trial.json", "run.sh")
"""Files of every exported trial, with which its folder is recognised."""

MOST = 2_000
"""Largest number of files, and of folders, that are read; a folder of code has far fewer."""

LARGEST = 16 << 20
"""Largest number of bytes of a file of code that are read."""

_PARSING = threading.Lock()


def content_of(file: Path, most: int = LARGEST) -> bytes:
    """Return the content of a regular file, without waiting for pipes.

    Args:
        file: Path of the file.
        most: Largest number of bytes.

    Raises:
        OSError: The file cannot be read, is not a regular file, or is larger.
    """
    content = _beginning_of(file, most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(file))
    return content


def text_of(file: Path) -> str:
    """Return the text of a module in its declared encoding.

    Raises:
        OSError: The file cannot be read, is not a regular file, or is larger than `LARGEST`.
        SyntaxError: The encoding is wrong or unknown.
    """
    content = content_of(file)
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return content.decode(encoding)


def _beginning_of(file: Path, most: int) -> bytes:
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(file))
        return opened.read(most)


def digest_of(target: str | Sequence[str], folder: Path) -> str:
    """Return the SHA-256 of the code of a trainable, which does not depend on the path of the folder.

    The code is every Python file in the folder, and the files that the words of a command name, each up to
    `LARGEST` bytes. For an installed package it is every Python file of the package.

    Args:
        target: `file.py:name` or `package.module:name`, or the words of a command.
        folder: Folder of the trainable.
    """
    digest = hashlib.sha256()
    for name, file in sorted(files_of(target, folder)):
        try:
            content = _digest_of_file(file)
        except OSError:
            continue  # it is gone, or may not be read; then no process can import it
        digest.update(f"{name}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def files_of(target: str | Sequence[str], folder: Path) -> list[tuple[str, Path]]:
    """Return the relative names and the paths of the files of a trainable's code, as in `digest_of`."""
    return files_of_reference(target, folder) if isinstance(target, str) else _files_of(target, folder)


def _digest_of_file(file: Path) -> bytes:
    """Return the digest of a file; for a file larger than `LARGEST`, that of its beginning and its size.

    Raises:
        OSError: The file cannot be read, or is not a regular file.
    """
    beginning = _beginning_of(file, LARGEST)
    digest = hashlib.sha256(beginning)
    if len(beginning) == LARGEST:
        digest.update(str(file.stat().st_size).encode())
    return digest.digest()


def module_in(folder: Path, module: str) -> bool:
    """Return True if a folder holds the top level of a module."""
    top = module.partition(".")[0]
    return (folder / f"{top}.py").is_file() or (folder / top).is_dir()


def source_of(module: str, folder: Path) -> Path | None:
    """Return the file of a module, in a folder or installed, or None if it has none; nothing is imported.

    Args:
        module: `file.py`, which is in the folder, or `package.module`.
        folder: Folder of the trainable.
    """
    if module.endswith(".py"):
        return folder / module if (folder / module).is_file() else None
    top, *below = module.split(".")
    if module_in(folder, module):
        return _file_below(folder, [top, *below])
    spec = find_spec(top)
    if spec is None:
        return None
    if not below:
        return Path(spec.origin) if spec.origin else None
    roots = spec.submodule_search_locations or ()
    return next((file for root in roots if (file := _file_below(Path(root), below))), None)


def _file_below(root: Path, names: Sequence[str]) -> Path | None:
    inner = Path(root, *names)
    return next((file for file in (inner.with_suffix(".py"), inner / "__init__.py") if file.is_file()), None)


def holds_no_code(folder: Path) -> bool:
    """Return True for a folder that is hidden, is a virtual environment, or has data or results.

    The folder of an exported trial has results: what a user exports beside the code does not change the code.
    """
    return (
        folder.name.startswith(".")
        or folder.name in NO_CODE
        or is_environment(folder)
        or all((folder / name).is_file() for name in EXPORTED)
    )


def is_environment(folder: Path) -> bool:
    """Return True for the folder of a virtual environment, or of one of conda."""
    return (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").exists()


def files_of_reference(reference: str, folder: Path) -> list[tuple[str, Path]]:
    """Return the relative names and the paths of the Python files of a function or a program.

    Args:
        reference: `file.py:name` or `package.module:name`.
        folder: Folder of the trainable.
    """
    module = reference.partition(":")[0]
    if module.endswith(".py"):
        own = [(module, folder / module)]
        return list({*_python_files(folder), *own})
    if module_in(folder, module):
        return list(_python_files(folder))
    spec = find_spec(module.partition(".")[0])
    if spec is None:
        return []
    if spec.submodule_search_locations is None:
        return [(spec.name, Path(spec.origin))] if spec.origin else []
    return [pair for root in spec.submodule_search_locations for pair in _python_files(Path(root))]


def _files_of(words: Sequence[str], folder: Path) -> list[tuple[str, Path]]:
    named = [(word, folder / word) for word in words if "{" not in word and (folder / word).is_file()]
    beside = [(word, file) for word, file in named if not Path(word).is_absolute()]
    return list({*_python_files(folder), *beside})


def _python_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the Python files below a folder with their relative paths, at most `MOST`."""
    files = 0
    for folders, (path, below, names) in enumerate(os.walk(root), 1):
        below[:] = sorted(name for name in below if not holds_no_code(Path(path, name)))
        for name in sorted(names):
            if name.endswith(".py"):
                files += 1
                yield Path(path, name).relative_to(root).as_posix(), Path(path, name)
        if files >= MOST or folders >= MOST:
            return


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
