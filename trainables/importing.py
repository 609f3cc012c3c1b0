"""Imports of user programs from a folder or a package, which can be repeated after their files changed."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from trainables.errors import Refusal
from trainables.sources import module_in


def imported(reference: str, folder: Path) -> Any:
    """Return the object that `package.module:Name` or `file.py:Name` names, in a folder or installed.

    Raises:
        Refusal: The module or the name does not exist.
    """
    module, _, name = reference.partition(":")
    try:
        if module.endswith(".py"):
            return getattr(_module_of_file(folder / module), name)
        if module_in(folder, module):
            _enter(folder)
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, OSError) as error:
        must = "must name something that can be imported"
        got = f"{type(error).__name__}: {error}"
        remedy = "Write package.module:Name, or file.py:Name for a file beside the YAML file."
        raise Refusal("trainable", must, got, remedy) from error


def forget_modules(reference: str, folder: Path) -> None:
    """Forget the imported modules of a program, so that changed files are imported again."""
    module = reference.partition(":")[0]
    if module.endswith(".py"):
        _leave((folder / module).parent)
        return
    _leave(folder)
    top = module.partition(".")[0]
    for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def _module_of_file(file: Path) -> Any:
    """Import a file as a module, once; the file can import its neighbours."""
    folder = file.parent.resolve()
    name = f"{_BESIDE}{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]}_{file.stem}"
    _enter(folder)
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


_BESIDE = "_beside_"
"""Prefix of the names of modules that are files of a user's folder."""

_known_before: dict[Path, frozenset[str]] = {}
"""The folder that is on the path, if any, and the names of the modules that were imported before it was."""


def _enter(folder: Path) -> None:
    """Replace the folder on the import path.

    Only one folder is on the path at a time, because modules of different folders can have the same names.
    """
    folder = folder.resolve()
    if (taken := _name_of_ours(folder)) is not None:
        must = "must not contain modules named like those of this package"
        raise Refusal("trainable", must, str(taken), "Rename it.")
    for other in _known_before.keys() - {folder}:
        _leave(other)
    if folder not in _known_before:
        _known_before[folder] = frozenset(sys.modules)
        sys.path.insert(0, str(folder))


def _name_of_ours(folder: Path) -> Path | None:
    """Return the name of a module in a folder that equals one of our packages, or None."""
    own = Path(__file__).resolve().parents[1]
    names = [folder / name for name in ("orchestrator", "trainables") if folder != own]
    files = [file for name in names for file in (name.with_suffix(".py"), name / "__init__.py")]
    return next(filter(Path.exists, files), None)


def _leave(folder: Path) -> None:
    """Remove a folder from the path, and forget every module that was imported from it."""
    folder = folder.resolve()
    known = _known_before.pop(folder, None)
    if known is None:
        return
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name not in known]:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin and "site-packages" not in origin and Path(origin).resolve().is_relative_to(folder):
            del sys.modules[name]
    importlib.invalidate_caches()
