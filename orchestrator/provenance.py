"""Origin of a sweep: commit, package versions and command line, and the identity of this code.

`git_commit` and `file_at` fork: call them before Ray or JAX start threads.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from orchestrator.accounts import Account
from orchestrator.process_secrets import NOTIFY, redacted, without_secrets

_OWN_CODE = ("orchestrator", "trainables")
"""The folders whose modules this project imports."""

_PACKAGES = ("ray", "jax", "jaxlib", "flax", "optax", "optuna", "mlflow", "sqlalchemy", "numpy")


def git_commit(folder: Path = Path(), account: Account | None = None) -> str:
    """Return the commit of a folder, with `+changes` if its tree is not clean; `unknown` outside git.

    Args:
        folder: Folder of the code.
        account: Account as which git runs, or None for that of this process.
    """
    commit = _git(folder, "rev-parse", "HEAD", account=account)
    if commit is None:
        return "unknown"
    commit = commit.strip()
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", account=account)
    return f"{commit}+changes" if changed else commit


def changes(folder: Path, left_out: Sequence[str], account: Account | None = None) -> str:
    """Return the diff of a folder's tracked files against the commit; empty outside git.

    Args:
        folder: Folder of the code.
        left_out: File name patterns to exclude.
        account: Account as which git runs, or None for that of this process.
    """
    others = [f":(exclude,glob)**/{pattern}" for pattern in left_out]
    return _git(folder, "diff", "--no-ext-diff", "HEAD", "--", ".", *others, account=account) or ""


def tracked(folder: Path, account: Account | None = None) -> list[str]:
    """Return the relative names of the files below a folder that git tracks; none outside git."""
    return [name for name in (_git(folder, "ls-files", "-z", account=account) or "").split("\0") if name]


def file_at(folder: Path, commit: str, name: str) -> str | None:
    """Return the content of a file at a commit of a folder, or None if git does not know it."""
    return _git(folder, "show", f"{commit}:{name}") if commit else None


def _git(folder: Path, *arguments: str, account: Account | None = None) -> str | None:
    return output_of(["git", "-C", str(folder), *arguments], 5, account)


def output_of(words: Sequence[str], seconds: float, account: Account | None = None) -> str | None:
    """Return what a program prints, or None if it cannot be run, fails, or takes too long.

    Args:
        words: Program and its arguments; it gets no secrets of this process.
        seconds: Time limit.
        account: Account as which it runs, or None for that of this process.
    """
    rights: dict[str, Any] = {}
    if account is not None:
        rights = {"user": account.uid, "group": account.gid, "extra_groups": account.groups}
    environment = without_secrets(os.environ)
    try:
        done = subprocess.run(
            words,
            env=environment if account is None else {**environment, "HOME": account.home},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            **rights,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def versions() -> dict[str, str]:
    """Return the versions of Python and of every installed package that can change a result."""
    installed = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def code_digest() -> str:
    """Return the SHA-256 of the code on disk: of this project's modules, and of what is installed.

    A process that is older than a change on disk runs other code than a process that starts now. Of an
    installed package its name and version count, not its content.
    """
    project = Path(__file__).parents[1]
    digest = hashlib.sha256(sys.version.encode())
    for file in sorted(file for folder in _OWN_CODE for file in (project / folder).rglob("*.py")):
        digest.update(f"{file.relative_to(project)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    installed = Path(sysconfig.get_path("purelib")).glob("*.dist-info")
    digest.update(" ".join(sorted(folder.name for folder in installed)).encode())
    return digest.hexdigest()


def command() -> str:
    """Return the command line of this process with a short program name and without secrets."""
    words = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return redacted(re.sub(rf"(?<={NOTIFY}[ =])\S+", "...", words))
