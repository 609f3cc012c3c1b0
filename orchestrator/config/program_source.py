"""What the source of a program's class declares; it is read, because importing it takes seconds."""

from __future__ import annotations

import ast
from importlib.metadata import packages_distributions
from pathlib import Path, PurePath

from orchestrator.config.document import Violation, nearest
from trainables.parsing import parsed
from trainables.sources import module_in, source_of, text_of

_PATH = ("trainable", "program")


def free_of(reference: str, folder: Path) -> tuple[str, ...]:
    """Return `free` of a program's class.

    Args:
        reference: `module:Name` or `file.py:Name`.
        folder: in which files are looked for.

    Raises:
        Violation: there is no such file or class, or its `free` is no list of words.
    """
    found = _class_of(reference, folder)
    for node in found.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "free" for target in targets):
            return _words(node.value, found.name)
    return ("learning_rate",)


def why_not_registered(reference: str, folder: Path) -> str | None:
    """Return why a program's chosen trial does not become a registered model, or None if it does.

    Args:
        reference: `module:Name` or `file.py:Name`.
        folder: in which files are looked for.

    Raises:
        Violation: there is no such file or class.
    """
    found = _class_of(reference, folder)
    if not any(isinstance(node, ast.FunctionDef) and node.name == "predict" for node in found.body):
        return f"class {found.name} does not define `predict`"
    return why_not_kept(reference, folder)


def why_not_kept(reference: str, folder: Path) -> str | None:
    """Return why a registered model cannot hold the code of a class or a function, or None if it can."""
    module = reference.partition(":")[0]
    if module.endswith(".py"):
        file = PurePath(module)
        return f"{module} is not below {folder}" if file.is_absolute() or ".." in file.parts else None
    top = module.partition(".")[0]
    if not module_in(folder, module) and top not in packages_distributions():
        return f"{top} belongs to no installed distribution, and is not in {folder}"
    return None


def _class_of(reference: str, folder: Path) -> ast.ClassDef:
    module, _, name = reference.partition(":")
    file = source_of(module, folder)
    if file is None or not file.is_file():
        must = "must name a class whose source can be read"
        remedy = "Write package.module:Name of an installed package, or file.py:Name beside this file."
        raise Violation(_PATH, must, remedy, f"no file for `{module}`")
    try:
        tree = parsed(text_of(file), str(file))
    except (SyntaxError, ValueError, OSError) as error:
        raise Violation(_PATH, "must name a class in valid Python", "Correct the file.", str(error)) from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        raise Violation(_PATH, f"must name a class of {file.name}", nearest(name, classes), f"`{name}`")
    return classes[name]


def _words(node: ast.expr | None, name: str) -> tuple[str, ...]:
    try:
        words = ast.literal_eval(node) if node is not None else None
    except ValueError:
        words = None
    if not isinstance(words, tuple | list) or not all(isinstance(word, str) for word in words):
        must = f"`free` of {name} must be a tuple of names, written out"
        raise Violation(_PATH, must, 'For example free = ("learning_rate",).')
    return tuple(words)
