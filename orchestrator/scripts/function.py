"""Runs a user's function: `python -P function.py REFERENCE FOLDER`.

It runs as a file and does not import this package, because modules of the user may have the same names. The
function sees `sys.argv`, the start of `sys.path` and `__main__` of its own file.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def found(reference: str, folder: Path) -> Callable[[Any], object]:
    """Return the function that `package.module:name` or `file.py:name` names.

    Raises:
        ImportError: The module does not exist.
        AttributeError: The module has no such function.
    """
    _enter(folder)
    module, _, name = reference.partition(":")
    if not module.endswith(".py"):
        sys.argv = [module]
        spec = importlib.util.find_spec(module)
        sys.argv = [str(spec.origin) if spec is not None else module]
        function: Callable[[Any], object] = getattr(importlib.import_module(module), name)
        return function
    file = folder / module
    _enter(file.parent)
    sys.argv = [str(file)]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ImportError(f"no file {file}")
    # A process that `multiprocessing` spawns imports the main module again, which must be the user's.
    sys.modules["__main__"].__file__ = str(file)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = loaded
    spec.loader.exec_module(loaded)
    function = getattr(loaded, name)
    return function


def _enter(folder: Path) -> None:
    """Put a folder first on the import path; it may contain its own `sweep_client`."""
    sys.path.insert(0, str(folder))
    if (folder / "sweep_client.py").exists() or (folder / "sweep_client").is_dir():
        for name in [name for name in sys.modules if name.partition(".")[0] == "sweep_client"]:
            del sys.modules[name]


def main() -> None:
    """Call the function with the trial."""
    import sweep_client  # only on the path of scripts, see `orchestrator.scripts.script_process`

    reference, folder = sys.argv[1:]
    found(reference, Path(folder))(sweep_client.trial())


if __name__ == "__main__":
    main()
