"""As which account the code of a sweep runs, by the configuration of the service."""

from __future__ import annotations

import grp
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.accounts import CODE_AS_USERS, MACHINES, NOBODY, Account, account_of, files_as
from orchestrator.config.trainable import Trainable
from orchestrator.errors import BadInput
from orchestrator.ledger.connect import database_file, is_file, parse
from orchestrator.storage.paths import Paths

OPTION = "--code-as-users"
"""Option of `serve`."""

AS_USER = "as_user"
"""Option of a submission: whether its code may run as the account of its owner only."""

CODE = Path(__file__)
"""A file of this installation, which accounts must be able to read."""


def runs_code_as_users() -> bool:
    """Return True if this process runs the code of sweeps as the accounts of their owners, or not at all."""
    return bool(os.environ.get(CODE_AS_USERS))


def check_bound(sweep_id: str, options: Mapping[str, Any]) -> None:
    """Check that this process would not run code as itself that is bound to the account of its owner.

    Args:
        sweep_id: of the code.
        options: of its submission.

    Raises:
        BadInput: it would.
    """
    if options.get(AS_USER) and not runs_code_as_users():
        must = "must be run by a service that runs code as users, as the one that took it"
        raise BadInput(sweep_id, must, "another process", "Start `serve --code-as-users GROUP`, as root.")


@contextmanager
def opened_as(account: Account | None) -> Iterator[None]:
    """Read what a user has named with the rights of an account alone, for the length of a `with` block.

    Args:
        account: whose rights; None for those of this process.

    Raises:
        BadInput: the account may not read it.
    """
    try:
        with files_as(account):
            yield
    except PermissionError as error:
        if account is None:
            raise
        must = f"must be open to {account.name}, the account as which the code runs"
        remedy = "Change its rights, or name another folder."
        raise BadInput(str(error.filename), must, str(error.strerror), remedy) from None


def reader_for(owner: str) -> Account | None:
    """Return with whose rights a file that an owner has sent is read; None for those of this process."""
    group = os.environ.get(CODE_AS_USERS)
    if not group:
        return None
    try:
        return account_of(owner, group)
    except BadInput:
        return NOBODY  # whose file then names no code that could run


def account_for(trainable: Trainable | None, owner: str) -> Account | None:
    """Return the account as which the code of a sweep runs; None if it has none, or runs as this process.

    Args:
        trainable: of the sweep, or None.
        owner: in whose name the sweep runs.

    Raises:
        BadInput: code must run as its owner, and cannot.
    """
    group = os.environ.get(CODE_AS_USERS)
    if trainable is None or not group:
        return None
    if os.geteuid() != 0:
        must = "must be unset unless root runs sweeps: no other user can run code as other accounts"
        raise BadInput(CODE_AS_USERS, must, f"{group}, for user {os.geteuid()}", "Unset it.")
    if trainable.kind == "program":
        must = "must be left out where code runs as users: engines, which train programs, are the service's"
        remedy = "Make it a function or a command."
        raise BadInput("trainable.program", must, trainable.name, remedy)
    if trainable.predictor:
        must = "must be left out where code runs as users: the service would copy its files to MLflow"
        raise BadInput("trainable.predictor", must, trainable.predictor, "Leave it out.")
    if trainable.mlflow:
        must = "must be left out where code runs as users: it hands the service's access to MLflow on"
        raise BadInput("trainable.mlflow", must, "true", "Leave it out, and report what is to be seen there.")
    if os.environ.get("RAY_ADDRESS"):
        must = "must be unset where code runs as users: accounts are those of one machine"
        remedy = "Ask an admin to run a service without a cluster."
        raise BadInput("RAY_ADDRESS", must, "the address of a cluster", remedy)
    return account_of(owner, group)


def check_service(group: str, paths: Paths, data: Path) -> None:
    """Check that a service of this process can run code as users, and keeps what is its own from them.

    Args:
        group: whose members' code it is to run.
        paths: where it writes; the root is created for its owner alone if it is missing.
        data: folder of the data sets.

    Raises:
        BadInput: it cannot.
    """
    if sys.platform != "linux" or platform.machine() not in MACHINES or os.geteuid() != 0:
        must = f"must be given to a service that root runs on Linux ({', '.join(MACHINES)})"
        got = f"user {os.geteuid()} on {platform.system()}, {platform.machine()}"
        raise BadInput(OPTION, must, got, "Leave it out: then no code of users runs that comes over HTTP.")
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
    """Check that no account but root can replace a folder, or what is in it, by something else.

    Raises:
        BadInput: one can, in the folder or in one above it.
    """
    named, real = folder.absolute(), folder.resolve()
    for place in (named, *named.parents, real, *real.parents):
        try:
            found = place.lstat()
        except FileNotFoundError:
            continue  # root makes it, in one of those above it
        is_open = bool(found.st_mode & 0o022) and not found.st_mode & stat.S_ISVTX
        if found.st_uid != 0 or (is_open and not stat.S_ISLNK(found.st_mode)):
            must = f"must be root's, and writable by no other account, which could replace {folder}"
            got = f"mode {stat.S_IMODE(found.st_mode):o} of user {found.st_uid}"
            raise BadInput(str(place), must, got, "Name another folder, or `chown` and `chmod` it.")
