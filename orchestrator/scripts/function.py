"""Runs a function of a user: `python function.py REFERENCE FOLDER`.

What the function sees of its process is that of its own file: `sys.argv`, the first folder of `sys.path` and,
of a file, `__main__`. So this module is started by its path, and imports nothing of this package.
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
        ImportError: there is no such module.
        AttributeError: the module has no such function.
    """
    module, _, name = reference.partition(":")
    if not module.endswith(".py"):
        sys.path[0], sys.argv = str(folder), [module]
        loaded = importlib.import_module(module)
        sys.argv = [str(loaded.__file__)]
        function: Callable[[Any], object] = getattr(loaded, name)
        return function
    file = folder / module
    sys.path[:1] = list(dict.fromkeys([str(file.parent), str(folder)]))
    sys.argv = [str(file)]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ImportError(f"no file {file}")
    # A process that `multiprocessing` spawns reads the main module again: that of the user.
    sys.modules["__main__"].__file__ = str(file)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = loaded
    spec.loader.exec_module(loaded)
    function = getattr(loaded, name)
    return function


def main() -> None:
    """Call the function with the trial."""
    import sweep_client  # it is on the path of scripts alone, see `orchestrator.scripts.process`

    reference, folder = sys.argv[1:]
    found(reference, Path(folder))(sweep_client.trial())


if __name__ == "__main__":
    main()
