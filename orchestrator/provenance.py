"""Origin of a sweep: commit, versions and command line. It forks: call it before Ray or JAX start threads."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from orchestrator.errors import redacted

_PACKAGES = ("ray", "jax", "jaxlib", "flax", "optax", "optuna", "mlflow", "sqlalchemy", "numpy")


def git_commit(folder: Path = Path()) -> str:
    """Return the commit of a folder, with `+changes` if its tree is not clean; `unknown` outside git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return "unknown"
    commit = commit.strip()
    return f"{commit}+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else commit


def file_at(folder: Path, commit: str, name: str) -> str | None:
    """Return the content of a file at a commit of a folder, or None if git does not know it."""
    return _git(folder, "show", f"{commit}:{name}") if commit else None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=5, check=False
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


def command() -> str:
    """Return the command line of this process with a short program name and without secrets."""
    words = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    # The address of a webhook is a secret: it lets its holder post messages.
    return redacted(re.sub(r"(?<=--notify[ =])\S+", "...", words))
