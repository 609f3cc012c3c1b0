"""Archive of the code that a sweep ran: its files, the interpreter's packages, the machine.

An archive has these entries:

    code/...          files of the trainable's folder
    changes.patch     their diff against the commit
    packages.txt      packages of the interpreter, as `pip freeze` lists them
    ran.json          commit, command line, machine, and the SHA-256 and size of each file

If the code changed while the sweep ran, the archive of the changed code lacks the second and the third entry.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from orchestrator import provenance
from orchestrator.accounts import Account, files_as
from orchestrator.config.trainable import Trainable
from orchestrator.process_secrets import redacted, secrets_of_environment
from trainables.sources import content_of, files_of

LARGEST_FILE = 1 << 20
"""Largest file in bytes that is copied; of a larger one the digest is kept."""

MOST_BYTES = 20 << 20
"""Largest total size of the copied files in bytes."""

MOST_FILES = 2_000
"""Largest number of files."""

SECONDS = 20.0
"""Time limit of a program that is asked for its packages or its devices."""

SECRET_FILES = (".env*", "*.pem", "*.key", "id_*", ".netrc", ".npmrc", ".pypirc", "*credential*", "*secret*")
"""Patterns of names of files that hold secrets, and are left out."""

_FREEZE = """
import json, importlib.metadata as metadata
for one in metadata.distributions():
    source = json.loads(one.read_text("direct_url.json") or "{}")
    url = source.get("url", "")
    commit = source.get("vcs_info", {}).get("commit_id", "")
    own = f"{source['vcs_info']['vcs']}+{url}@{commit}" if commit else url
    print(f"{one.metadata['Name']} @ {own}" if own else f"{one.metadata['Name']}=={one.version}")
"""


def keep(
    trainable: Trainable, folder: Path, account: Account | None = None, *, programs: bool = True
) -> Path:
    """Write the archive of a trainable's current code, unless it exists; return its path.

    Secrets of this process are replaced by stars, and files with the names of secrets are left out.

    Args:
        trainable: Function, command or program.
        folder: Folder of the archive, which is created.
        account: Account as which the code runs: files are read with its rights, and programs run as it.
        programs: Whether git, the interpreter and `nvidia-smi` are called. They take a second, and a process
            that uses Ray should not fork.
    """
    with files_as(account):
        archive = folder / f"code-{trainable.code()[:12]}.zip"
    if archive.exists():
        return archive
    place, secrets = Path(trainable.folder), secrets_of_environment()
    names = provenance.tracked(place, account) if programs else []
    with files_as(account):
        entries, files = _copied(trainable, names, secrets)
    facts: dict[str, Any] = {
        "trainable": trainable.document(),
        "commit": provenance.git_commit(place, account) if programs else None,
        "command": provenance.command(),
        "interpreter": _interpreter(trainable),
        "machine": {"system": platform.platform(), "python": platform.python_version(), "gpus": []},
        "files": files,
    }
    if programs:
        facts["machine"]["gpus"] = _devices()
        patch = provenance.changes(place, SECRET_FILES, account)
        entries["changes.patch"] = redacted(patch, secrets).encode()[:MOST_BYTES]
        entries["packages.txt"] = redacted(_packages(trainable, account), secrets).encode()
    entries["ran.json"] = (json.dumps(facts, indent=1) + "\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    beside = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as opened:
            for name, content in entries.items():
                opened.writestr(name, content)
        beside.replace(archive)
    finally:
        beside.unlink(missing_ok=True)
    return archive


def _copied(
    trainable: Trainable, tracked: Sequence[str], secrets: Sequence[str]
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the contents of the files by entry, and what is recorded of each file.

    Args:
        trainable: Function, command or program.
        tracked: Names of the files that git tracks.
        secrets: Texts to replace.
    """
    place = Path(trainable.folder)
    found = {**{name: place / name for name in tracked}, **dict(files_of(trainable.target, place))}
    entries: dict[str, bytes] = {}
    files: dict[str, Any] = {}
    total = 0
    for name, file in sorted(found.items()):
        if _is_left_out(Path(name)) or len(files) == MOST_FILES:
            continue
        try:
            content = content_of(file)
        except OSError:
            continue  # it is gone, no file, or too large for code
        shown = _without_secrets(content, secrets)
        is_copied = len(content) <= LARGEST_FILE and total + len(shown) <= MOST_BYTES
        known = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        files[name] = {**known, "copied": is_copied, "redacted": shown != content}
        if is_copied:
            total += len(shown)
            entries[f"code/{name}"] = shown
    return entries, files


def _is_left_out(name: Path) -> bool:
    """Return True for a path outside the folder, and for a file with the name of a secret."""
    is_secret = any(fnmatch(name.name.lower(), pattern) for pattern in SECRET_FILES)
    return name.is_absolute() or ".." in name.parts or (is_secret and name.suffix != ".py")


def _without_secrets(content: bytes, secrets: Sequence[str]) -> bytes:
    """Return a text with stars in place of secrets; empty for any other file with a secret."""
    try:
        return redacted(content.decode(), secrets).encode()
    except UnicodeDecodeError:
        return b"" if any(secret.encode() in content for secret in secrets) else content


def _interpreter(trainable: Trainable) -> str | None:
    """Return the Python interpreter that runs the code, or None if the command starts another program."""
    if isinstance(trainable.target, str):
        return sys.executable
    first = trainable.target[0].split()[0] if trainable.shell else trainable.target[0]
    if not Path(first).name.startswith("python"):
        return None
    return shutil.which(str(Path(trainable.folder, first)) if "/" in first else first)


def _packages(trainable: Trainable, account: Account | None) -> str:
    """Return the packages of the interpreter, one on each line, or the reason why they are unknown."""
    interpreter = _interpreter(trainable)
    if interpreter is None:
        return "# The command starts no Python interpreter.\n"
    lines = provenance.output_of([interpreter, "-c", _FREEZE], SECONDS, account)
    if lines is None:
        return f"# {interpreter} has not answered.\n"
    return "".join(sorted(f"{line}\n" for line in set(lines.splitlines()) if line))


def _devices() -> list[str]:
    """Return the name, memory and driver of each NVIDIA GPU of this machine."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    return (provenance.output_of(query, SECONDS) or "").splitlines()
