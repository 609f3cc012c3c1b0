"""What can be seen of the code of a trainable before anything starts: nothing is imported or run."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TypeGuard

from orchestrator.config.document import Violation, nearest
from orchestrator.config.trainable import Trainable, free_of
from orchestrator.errors import BadInput
from trainables.parsing import parsed
from trainables.sources import module_in, source_of, text_of


def check_code(trainable: Trainable) -> None:
    """Check that the code of a trainable is where the search-space file says.

    Raises:
        BadInput: there is no such folder, file, function or command, or the class of a program declares other
            free hyperparameters than its sweep began with.
    """
    folder = Path(trainable.folder)
    if not folder.is_dir():
        must, remedy = "must be a folder", "Give `trainable.folder`, or move the file back."
        raise BadInput("trainable.folder", must, str(folder), remedy)
    if trainable.predictor:
        _check_reference("predictor", trainable.predictor, folder, "the folder of a checkpoint")
    if isinstance(trainable.target, tuple):
        if not trainable.shell:
            _check_command(trainable.target, folder)
        return
    _check_reference(trainable.kind, trainable.target, folder, "the trial")
    source = source_of(trainable.target.partition(":")[0], folder)
    if trainable.kind == "program" and source is not None and source.suffix == ".py":
        _check_free(trainable, folder)


def _check_reference(kind: str, reference: str, folder: Path, argument: str) -> None:
    """Check that a function or a class is where the search-space file says.

    Args:
        kind: of what it is, the name of its key.
        reference: `file.py:name` or `package.module:name`.
        folder: in which files are looked for.
        argument: what a function takes, in words.
    """
    module, _, name = reference.partition(":")
    where, file = f"trainable.{kind}", source_of(module, folder)
    if file is not None and file.suffix == ".py":
        if kind != "program":
            _check_function(where, file, name, argument)
    elif module.endswith(".py"):
        must, remedy = "must name a file beside the search-space file", "Correct the name."
        raise BadInput(where, must, str(folder / module), remedy)
    elif module_in(folder, module) or find_spec(module.partition(".")[0]) is None:
        must = "must name a module that is installed, or beside the search-space file"
        raise BadInput(where, must, f"no module {module}", "Install it, or correct the name.")


def _check_free(trainable: Trainable, folder: Path) -> None:
    """Check that the class of a program declares as free what the sweep has taken for free."""
    try:
        declared = free_of(str(trainable.target), folder)
    except Violation as error:
        raise BadInput("trainable.program", error.must, str(error.got), error.remedy) from None
    if declared != trainable.free:
        must = f"`free` must be what it was when the sweep began: {', '.join(trainable.free) or 'nothing'}"
        remedy = "Set it back, or run the search-space file, which is then read again."
        raise BadInput("trainable.program", must, ", ".join(declared) or "nothing", remedy)


# ------------------------------------------------------------------ commands


def _check_command(words: tuple[str, ...], folder: Path) -> None:
    """Check that a command and, if it is Python, its script are there."""
    first, second = words[0], words[1] if len(words) > 1 else ""
    # Another machine may have what this one, which only drives the sweep, has not.
    elsewhere = bool(os.environ.get("RAY_ADDRESS")) and not _is_beside(first)
    if "{" not in first and not elsewhere and not _found(first, folder):
        must, remedy = (
            "must start with a program that can be run",
            "Correct the path, or `chmod +x` the file.",
        )
        raise BadInput("trainable.command", must, first, remedy)
    is_script = Path(first).name.startswith("python") and second.endswith(".py")
    if is_script and "{" not in second and not Path(second).is_absolute() and not (folder / second).is_file():
        must, remedy = f"must name a script in {folder}", "Correct the name, or give `trainable.folder`."
        raise BadInput("trainable.command", must, f"no file {second}", remedy)


def _is_beside(word: str) -> bool:
    return os.sep in word and not Path(word).is_absolute()


def _found(word: str, folder: Path) -> bool:
    return shutil.which(str(folder / word) if _is_beside(word) else word) is not None


# ------------------------------------------------------------------ functions


def _check_function(where: str, file: Path, name: str, argument: str) -> None:
    """Check that a module binds the name of a function that takes one argument.

    Raises:
        BadInput: it does not, or is no valid Python.
    """
    try:
        body = parsed(text_of(file), str(file)).body
    except (SyntaxError, ValueError, OSError) as error:
        raise BadInput(where, f"{file.name} must be valid Python", str(error), "Correct it.") from None
    bound = dict(_bound(body))
    if name not in bound and "*" not in bound:
        functions = [one for one, node in bound.items() if isinstance(node, ast.FunctionDef)]
        must = f"must name a function of {file.name}"
        raise BadInput(where, must, f"`{name}`", nearest(name, functions or bound))
    node = bound.get(name)
    if isinstance(node, ast.AsyncFunctionDef):
        raise BadInput(where, f"{name} must be called without `await`", "async def", "Write `def`.")
    if isinstance(node, ast.FunctionDef) and not node.decorator_list and not _takes_one(node.args):
        must = f"{name} must take one argument, {argument}"
        remedy = f"Write `def {name}({argument.split()[1]})`."
        raise BadInput(where, must, f"{name}({ast.unparse(node.args)})", remedy)


def _takes_one(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    most = 1 if arguments.vararg else positional
    keywords_left = any(default is None for default in arguments.kw_defaults)
    return positional - len(arguments.defaults) <= 1 <= most and not keywords_left


def _bound(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that the statements of a module bind, in `if` and `try` too; `*` of a star import."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node
            case ast.Import() | ast.ImportFrom():
                yield from ((alias.asname or alias.name.partition(".")[0], node) for alias in node.names)
            case _:
                yield from ((one.id, node) for one in ast.walk(node) if _is_target(one))
                for part in ("body", "orelse", "finalbody"):
                    yield from _bound(getattr(node, part, []))
                for handler in getattr(node, "handlers", []):
                    yield from _bound(handler.body)


def _is_target(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
