"""Checks of users' code before it runs, and the Unix account that it runs as.

No user code is imported or run here.
"""

from __future__ import annotations

import ast
import grp
import os
import platform
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard

from orchestrator.accounts import CODE_AS_USERS, MACHINES, NOBODY, Account, account_of, files_as
from orchestrator.config.document import Violation, nearest
from orchestrator.config.trainable import Trainable, free_of
from orchestrator.errors import BadInput
from orchestrator.ledger.connect import database_file, is_file, parse
from orchestrator.storage.paths import Paths
from trainables.sources import module_in, parsed, source_of, text_of


def check_code(trainable: Trainable) -> None:
    """Check that the code of a trainable is where the search-space file says.

    Raises:
        BadInput: A folder, file, function or command is missing, or the class of a program declares other
            free hyperparameters than when its sweep began.
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
    """Check that a function or a class is where the search-space file says."""
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
    """Check that a program's class still declares the free hyperparameters with which the sweep began."""
    try:
        declared = free_of(str(trainable.target), folder)
    except Violation as error:
        raise BadInput("trainable.program", error.must, str(error.got), error.remedy) from None
    if declared != trainable.free:
        must = f"`free` must be the same as when the sweep began: {', '.join(trainable.free) or 'nothing'}"
        remedy = "Restore it, or run the search-space file again."
        raise BadInput("trainable.program", must, ", ".join(declared) or "nothing", remedy)


# ------------------------------------------------------------------ commands


def _check_command(words: tuple[str, ...], folder: Path) -> None:
    """Check that a command exists, and its script if it is Python."""
    first, second = words[0], words[1] if len(words) > 1 else ""
    # On a cluster the program may be installed only on the machines that run trials.
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
    """Check that a module binds the name of a function that takes one argument."""
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
        raise BadInput(where, f"{name} must not be an async function", "", "Write `def`.")
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
    """Yield the names that the statements of a module bind, also in `if` and `try`; `*` for a star import."""
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


OPTION = "--code-as-users"
"""Option of `serve`."""

AS_USER = "as_user"
"""Option of a submission: whether its code may only run as the account of its owner."""

CODE = Path(__file__)
"""File of this installation, which accounts must be able to read."""


def runs_code_as_users() -> bool:
    """Return True if this process may run the code of sweeps only as the accounts of their owners."""
    return bool(os.environ.get(CODE_AS_USERS))


def check_bound(sweep_id: str, options: Mapping[str, Any]) -> None:
    """Check that this process does not run code as itself that must run as the account of its owner.

    Raises:
        BadInput: It would run the code as itself.
    """
    if options.get(AS_USER) and not runs_code_as_users():
        must = "must be run by a service with `--code-as-users`, like the one that accepted it"
        raise BadInput(sweep_id, must, "another process", "Start `serve --code-as-users GROUP`, as root.")


@contextmanager
def opened_as(account: Account | None) -> Iterator[None]:
    """Open files with the rights of an account, or of this process if it is None, within a `with` block.

    Raises:
        BadInput: The account may not read a file.
    """
    try:
        with files_as(account):
            yield
    except PermissionError as error:
        if account is None:
            raise
        must = f"must be accessible to {account.name}, the account that runs the code"
        remedy = "Change its rights, or name another folder."
        raise BadInput(str(error.filename), must, str(error.strerror), remedy) from None


def reader_for(owner: str) -> Account | None:
    """Return the account that reads a submitted file, or None for this process."""
    group = os.environ.get(CODE_AS_USERS)
    if not group:
        return None
    try:
        return account_of(owner, group)
    except BadInput:
        return NOBODY  # code named in its files cannot run


def account_for(trainable: Trainable | None, owner: str) -> Account | None:
    """Return the account as which the code of a sweep runs; None without code, or to run as this process.

    Raises:
        BadInput: The code must run as its owner, and cannot.
    """
    group = os.environ.get(CODE_AS_USERS)
    if trainable is None or not group:
        return None
    if os.geteuid() != 0:
        must = "requires root, because only root can run code as other accounts"
        raise BadInput(CODE_AS_USERS, must, f"{group}, for user {os.geteuid()}", "Unset it.")
    if trainable.kind == "program":
        must = "is not available where code runs as users: programs share engines"
        remedy = "Make it a function or a command."
        raise BadInput("trainable.program", must, trainable.name, remedy)
    if trainable.predictor:
        must = "is not available where code runs as users: the service would copy its files to MLflow"
        raise BadInput("trainable.predictor", must, trainable.predictor, "Leave it out.")
    if trainable.mlflow:
        must = "is not available where code runs as users: it would expose the service's access to MLflow"
        raise BadInput("trainable.mlflow", must, "true", "Leave it out, and report the metrics instead.")
    if os.environ.get("RAY_ADDRESS"):
        must = "must be unset where code runs as users, because accounts exist on one machine only"
        remedy = "Ask an admin to run a service without a cluster."
        raise BadInput("RAY_ADDRESS", must, "the address of a cluster", remedy)
    return account_of(owner, group)


def check_service(group: str, paths: Paths, data: Path) -> None:
    """Check that a service of this process can run code as users, and protects its own files from them.

    Args:
        group: Group of the users whose code it runs.
        paths: Paths where it writes; a missing root is created with mode 700.
        data: Folder of the data sets.

    Raises:
        BadInput: The machine, the account, the group or a folder does not allow it.
    """
    if sys.platform != "linux" or platform.machine() not in MACHINES or os.geteuid() != 0:
        must = f"requires root on Linux, on {' or '.join(MACHINES)}"
        got = f"user {os.geteuid()} on {platform.system()}, {platform.machine()}"
        raise BadInput(OPTION, must, got, "Leave it out; the service then refuses users' code over HTTP.")
    try:
        grp.getgrnam(group)
    except KeyError:
        remedy = f"`groupadd {group}`, and add the accounts of the members."
        raise BadInput(OPTION, "must name a group of this machine", repr(group), remedy) from None
    ledger = parse(paths.ledger_url)
    own = [paths.root, *([database_file(ledger).parent] if is_file(ledger) else [])]
    for folder in (*own, data, *filter(None, [paths.cache])):
        _check_kept(folder)
    paths.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in own:
        if folder.exists() and (mode := stat.S_IMODE(folder.stat().st_mode)) & 0o077:
            must = "must be closed to other accounts where code runs as users"
            raise BadInput(str(folder), must, f"mode {mode:o}", f"Run `chmod 700 {folder}`.")
    python = (Path(sys.executable), Path(sys.executable).resolve())
    for file in (*python, CODE, Path(tempfile.gettempdir(), "files of a trial")):
        _check_kept(file.parent)
        for folder in file.parents:
            if not folder.stat().st_mode & stat.S_IXOTH:
                must = f"must be open to other accounts, which use {file} in it"
                remedy = "Install them below a folder such as /opt/sweeps, and leave TMPDIR out."
                raise BadInput(str(folder), must, f"mode {stat.S_IMODE(folder.stat().st_mode):o}", remedy)


def _check_kept(folder: Path) -> None:
    """Check that no account but root can replace a folder, a folder above it, or their contents."""
    named, real = folder.absolute(), folder.resolve()
    for place in (named, *named.parents, real, *real.parents):
        try:
            found = place.lstat()
        except FileNotFoundError:
            continue  # root creates it in a folder that is checked next
        is_open = bool(found.st_mode & 0o022) and not found.st_mode & stat.S_ISVTX
        if found.st_uid != 0 or (is_open and not stat.S_ISLNK(found.st_mode)):
            must = f"must belong to root, and no other account may write to it: it could replace {folder}"
            got = f"mode {stat.S_IMODE(found.st_mode):o} of user {found.st_uid}"
            raise BadInput(str(place), must, got, "Name another folder, or `chown` and `chmod` it.")
