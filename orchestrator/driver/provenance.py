"""Where a sweep came from: commit, versions, command. Collected before Ray or JAX start threads."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from orchestrator.redaction import redacted

_PACKAGES = ("ray", "jax", "jaxlib", "flax", "optax", "optuna", "mlflow", "sqlalchemy", "numpy")


def git_commit(folder: Path = Path()) -> str:
    """Return the commit of `folder`, `+changes` appended if the tree is not clean; `unknown` outside git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return "unknown"
    return f"{commit}+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else commit


def file_at(folder: Path, commit: str, name: str) -> str | None:
    """Return the content of a file at a commit of `folder`, or None where git does not know it."""
    return _git(folder, "show", f"{commit}:{name}") if commit else None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def versions() -> dict[str, str]:
    """Return the versions of Python and of every package that can change a result."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def command() -> str:
    """Return the command line of this process, program name shortened, secrets left out."""
    words = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    # Whoever knows a webhook's address may write to it.
    return redacted(re.sub(r"(?<=--notify[ =])\S+", "...", words))
