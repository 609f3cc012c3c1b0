"""The code of a user's program, kept in a registered model: its Python files, or the name of its package."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from trainables.errors import Refusal
from trainables.parsing import parsed
from trainables.sources import digest_of, files_of_reference, module_in, text_of


@dataclass(frozen=True)
class ProgramCode:
    """Where a model finds its program.

    Attributes:
        folder: with the Python files of the program, or None if it is an installed package.
        requirements: distributions that the program needs, such as `scikit-learn==1.7.2`.
    """

    folder: Path | None
    requirements: list[str]


def kept(program: Mapping[str, Any], folder: Path) -> ProgramCode:
    """Copy the Python files of a program to a new folder, unless it is an installed package.

    Args:
        program: its `target`, its `folder`, and the digest of the `code` that trained the trial; `trained`
            names what has trained it, if that is not the target.
        folder: to create.

    Raises:
        Refusal: the code is not that which trained the trial.
    """
    target, place = program["target"], Path(program["folder"])
    if digest_of(program.get("trained", target), place) != program["code"]:
        must, remedy = "must be that which trained the chosen trial", "Set it back, then `recover --mlflow`."
        raise Refusal(f"the code in {place}", must, "other files", remedy)
    module = target.partition(":")[0]
    if not (module.endswith(".py") or module_in(place, module)):
        return ProgramCode(None, _distributions({module.partition(".")[0]}))
    files = files_of_reference(target, place)
    for name, file in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / name)
    return ProgramCode(folder, _distributions(_imported(file for _, file in files)))


def _imported(files: Iterable[Path]) -> set[str]:
    """Return the top level of every module that Python files import."""
    found: set[str] = set()
    for file in files:
        with suppress(SyntaxError, ValueError):  # such a file cannot be imported, so nothing needs it
            for node in ast.walk(parsed(text_of(file), str(file))):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.partition(".")[0])
    return found


def _distributions(modules: set[str]) -> list[str]:
    """Return the distributions of modules, with their versions.

    Without that of `trainables`, which every model holds.
    """
    known = packages_distributions()
    names = {name for module in modules - {"trainables"} for name in known.get(module, ())}
    return [f"{name}=={version(name)}" for name in sorted(names)]
