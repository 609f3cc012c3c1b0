"""The accounts of this machine as which the code of users runs, in a service that root runs.

Such a service is root and could read files for one user that only another user may read: a path in a
search-space file, or a link in a checkpoint, can name any file. So it opens files that a user names with the
rights of that user's account. docs/decisions/0009-code-runs-as-its-owner.md has the consequences.
"""

from __future__ import annotations

import ctypes
import grp
import os
import platform
import pwd
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import BadInput

CODE_AS_USERS = "SWEEP_CODE_AS_USERS"
"""Environment variable: group whose members' code runs as their own accounts; none if unset."""

UMASK = "SWEEP_UMASK"
"""Environment variable: umask of the created files.

The default, 077, closes them to every other account; with 027 the group of this account can read them.
"""

MACHINES = ("x86_64", "aarch64")
"""Machines on which this module can change the rights of a single thread."""

_SETGROUPS = {"x86_64": 116, "aarch64": 159}
_CAPGET = {"x86_64": 125, "aarch64": 90}
_CAPSET = {"x86_64": 126, "aarch64": 91}
"""Numbers of system calls by machine. The functions of the C library would change every thread of a
process."""

_CAPABILITIES_VERSION = 0x20080522


@dataclass(frozen=True)
class Account:
    """An account of this machine.

    Attributes:
        name: Name of the account.
        uid: Id of its user.
        gid: Id of its primary group.
        groups: Ids of all its groups.
        home: Home folder.
    """

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


NOBODY = Account("nobody", 65_534, 65_534, (), "/")
"""An account without rights."""


def account_of(owner: str, group: str) -> Account:
    """Return the account with the name of an owner of sweeps; root decides which accounts are in the group.

    Raises:
        BadInput: The account does not exist, is not in the group, or has rights of root.
    """
    must = f"must have an account of the same name in the group {group}"
    try:
        entry = pwd.getpwnam(owner)
        admitted = grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        remedy = "Ask root of that machine to add the account and the group."
        raise BadInput("owner of the sweep", must, f"{owner!r}, no such account or group", remedy) from None
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    if admitted not in groups:
        remedy = f"Ask root of that machine to `usermod -aG {group} {owner}`."
        raise BadInput("owner of the sweep", must, f"{owner}, who is not in it", remedy)
    if entry.pw_uid == 0 or 0 in groups:
        must = "must be an account without root privileges"
        raise BadInput("owner of the sweep", must, owner, "Submit it under another name.")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(sorted(groups)), entry.pw_dir)


def umask() -> int:
    """Return the umask of the files and folders that this process creates.

    Raises:
        BadInput: The variable has an invalid value, or others could write to the files.
    """
    text = os.environ.get(UMASK) or "077"
    try:
        bits = int(text, 8)
    except ValueError:
        bits = 0
    if not 0o002 <= bits <= 0o077 or not bits & 0o002:
        must = "must be an octal umask that denies write access to others"
        raise BadInput(UMASK, must, repr(text), "Leave it out for 077, or set 027 to share with your group.")
    return bits


def check_closed(where: str, file: Path) -> None:
    """Check that no other account can read a file with a secret; `where` is the option that names the file.

    Raises:
        BadInput: Another account can read it.
    """
    if (mode := stat.S_IMODE(file.stat().st_mode)) & 0o077:
        must = "must be readable by its owner alone"
        raise BadInput(where, must, f"mode {mode:04o} of {file}", f"Run `chmod 600 {file}`.")


class _Closed:
    """Number of `files_closed` blocks in progress, and the umask before them."""

    def __init__(self) -> None:
        self.lock, self.blocks, self.before = threading.Lock(), 0, 0


_CLOSED = _Closed()


@contextmanager
def files_closed() -> Iterator[None]:
    """Close the files that this process creates to others within a `with` block, whatever its umask is.

    A process has one umask, which is restored when the last of several threads has left its block.

    Raises:
        BadInput: The umask in the environment is invalid; see `umask`.
    """
    wanted = umask()
    with _CLOSED.lock:
        if not _CLOSED.blocks:
            _CLOSED.before = os.umask(wanted)
        _CLOSED.blocks += 1
    try:
        yield
    finally:
        with _CLOSED.lock:
            _CLOSED.blocks -= 1
            if not _CLOSED.blocks:
                os.umask(_CLOSED.before)


@contextmanager
def files_as(account: Account | None) -> Iterator[None]:
    """Let this thread open files only with the rights of an account, within a `with` block.

    Other threads keep their rights. Start no process meanwhile, because it would have the rights of this one
    again. Open files of this process, and its working folder, stay accessible below /proc/self.

    Args:
        account: Account, or None for the rights of this process.

    Raises:
        OSError: The kernel has not changed the rights.
    """
    if account is None:
        yield
        return
    own_groups, own_capabilities = os.getgroups(), _capabilities()
    try:
        _set_rights(account.groups, account.gid, account.uid)
        # With CAP_SYS_PTRACE, links in /proc/PID would give access to the closed folders of other accounts.
        _set_capabilities([0, *own_capabilities[1:3], 0, *own_capabilities[4:]])
        yield
    finally:
        _set_capabilities(own_capabilities)
        _set_rights(own_groups, os.getegid(), os.geteuid())


def _set_rights(groups: Sequence[int], gid: int, uid: int) -> None:
    """Set this thread's groups, and its user and group for files; setting groups needs the rights of root."""
    library = ctypes.CDLL(None, use_errno=True)
    as_root = uid == os.geteuid()
    if as_root:
        _set(library.setfsuid, uid)
    array = (ctypes.c_uint32 * len(groups))(*groups)
    if library.syscall(_SETGROUPS[platform.machine()], len(groups), array) != 0:
        raise OSError(ctypes.get_errno(), "the groups of a thread cannot be set")
    _set(library.setfsgid, gid)
    if not as_root:
        _set(library.setfsuid, uid)


def _capabilities() -> list[int]:
    """Return the capabilities of this thread: effective, permitted and inheritable ones, low words first."""
    words = (ctypes.c_uint32 * 6)()
    _call_for_capabilities(_CAPGET, words)
    return list(words)


def _set_capabilities(words: Sequence[int]) -> None:
    _call_for_capabilities(_CAPSET, (ctypes.c_uint32 * 6)(*words))


def _call_for_capabilities(numbers: Mapping[str, int], words: ctypes.Array[ctypes.c_uint32]) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    this_thread = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    if library.syscall(numbers[platform.machine()], this_thread, words) != 0:
        raise OSError(ctypes.get_errno(), "the capabilities of a thread cannot be read or set")


def _set(call: object, value: int) -> None:
    """Set an id for files and check it, because the call returns the earlier id and no error."""
    assert callable(call)
    call(ctypes.c_uint32(value))
    if call(ctypes.c_uint32(0xFFFFFFFF)) != value:
        raise PermissionError(f"the rights of a thread cannot become those of {value}")
