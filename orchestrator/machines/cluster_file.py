"""Checks of cluster files: no credentials, no readable keys, no ports open to the world.

Credentials and open ports are searched line by line in files of any kind. The other checks read the keys of a
file for `ray up`.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.errors import BadInput

ModeOf = Callable[[str], int | None]
"""Function that returns the permission bits of a file of this machine, or None if it does not exist."""

TOKEN = "ray-token"
"""Name of the token file."""

UNFILLED = "FILL-IN"
"""Placeholder in the cluster files of this project for values that users must fill in."""

_KNOWN = re.compile(r"\A#!|^(provider|apiVersion|services):|^\[Service\]", re.MULTILINE)
"""Pattern of a script, and of keys of a file for `ray up`, Kubernetes, Docker Compose or systemd."""

_SECRETS = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "an access key": re.compile(r"\bA(KIA|SIA)[0-9A-Z]{16}\b"),
    "a password in an address": re.compile(r"://[^/\s:@]+:[^/\s@$]+@"),
    "a secret": re.compile(
        r"(secret_access_key|auth_token|password|passwd|api_key)[\"']?\s*[=:]\s*[\"']?[^\s\"'$~/<%{]", re.I
    ),
}
_OPEN = re.compile(r"(?<![\d.])0\.0\.0\.0(?![\d.])|(?<![\w:])::/0")
_DASHBOARD = re.compile(r"dashboard-host[\"']?[\s=:]+[\"']?(?![\"'\s=:]|127\.0\.0\.1|localhost)\S")
_NO_TOKEN = re.compile(r"RAY_AUTH_MODE[\"']?\s*[=:]\s*[\"']?(?!token)\w+")
_SECRET_FILE = re.compile(r"(token|key|credential|password|pgpass|\.pem)[^/]*$", re.I)


def problem_of_kind(name: str, text: str) -> BadInput | None:
    """Return the error in a file that starts neither a cluster nor a service, or None."""
    if _KNOWN.search(text):
        return None
    must = "must be a script, or a file for `ray up`, Kubernetes, Docker Compose or systemd"
    got = "no first line `#!`, and none of the keys `provider`, `apiVersion`, `services` and `[Service]`"
    return BadInput(name, must, got, "Copy a file of cluster/, or let `sweep init --cluster aws` write one.")


def problems_of_text(name: str, text: str) -> Iterator[BadInput]:
    """Yield the lines of a file that hold a credential or open the cluster to the world."""
    for number, line in enumerate(text.splitlines(), start=1):
        where, code = f"{name}:{number}", line.partition(" #")[0]
        if code.lstrip().startswith("#"):
            continue
        for what, pattern in _SECRETS.items():
            if pattern.search(code):
                remedy = "Name a file of mode 0600 that holds it."
                yield BadInput(where, "must not hold a credential", what, remedy)
        if _OPEN.search(code) or _DASHBOARD.search(code):
            remedy = "Name your own network; bind the dashboard to 127.0.0.1 and reach it by an SSH tunnel."
            yield BadInput(where, "must not open the cluster to the world", f"`{code.strip()}`", remedy)
        if _NO_TOKEN.search(code):
            remedy = "Set RAY_AUTH_MODE=token."
            yield BadInput(where, "must not turn the token off", f"`{code.strip()}`", remedy)


def is_for_ray_up(text: str) -> bool:
    """Return True if a file is for `ray up`."""
    return re.search(r"^provider:", text, re.MULTILINE) is not None


def problems(name: str, document: Mapping[str, Any], mode_of: ModeOf) -> Iterator[BadInput]:
    """Yield the errors in the keys of a file for `ray up`; `problems_of_text` checks its lines.

    Args:
        name: Name of the file, for messages.
        document: Content of the file.
        mode_of: Function that returns the permission bits of files that it names.
    """
    for key, value in _leaves(document):
        if UNFILLED in str(value):
            yield BadInput(
                f"{name}: {key}", "must be filled in", f"`{value}`", "The comment beside it says how."
            )
    if private := (document.get("auth") or {}).get("ssh_private_key"):
        yield from _private(f"{name}: auth.ssh_private_key", private, mode_of)
    mounts = document.get("file_mounts") or {}
    for remote, local in mounts.items():
        if _SECRET_FILE.search(str(local)):
            yield from _private(f"{name}: file_mounts.{remote}", local, mode_of)
        elif mode_of(local) is None:
            remedy = f"Run `mkdir -p {local}`, or leave it out."
            must = "must name a file or folder of this machine"
            yield BadInput(f"{name}: file_mounts.{remote}", must, f"no {local}", remedy)
    if not any(str(remote).endswith(TOKEN) for remote in mounts):
        remedy = f"Add `~/sweeps/mlruns/{TOKEN}: mlruns/{TOKEN}`."
        yield BadInput(f"{name}: file_mounts", "must copy a token to every node", "no token", remedy)
    if (document.get("provider") or {}).get("type") == "aws":
        yield from _aws(name, document.get("available_node_types") or {})


def _private(where: str, path: str, mode_of: ModeOf) -> Iterator[BadInput]:
    mode = mode_of(path)
    if mode is None:
        is_token = path.endswith(TOKEN)
        remedy = "Run `cluster token`." if is_token else "Name the file that you log in with."
        yield BadInput(where, "must name an existing file", f"no {path}", remedy)
    elif mode & 0o077:
        remedy = f"Run `chmod 600 {path}`."
        yield BadInput(where, "must be readable by its owner alone", f"mode {mode:04o}", remedy)


def _aws(name: str, node_types: Mapping[str, Any]) -> Iterator[BadInput]:
    for kind, node in node_types.items():
        if not (node.get("node_config") or {}).get("SecurityGroupIds"):
            where = f"{name}: available_node_types.{kind}.node_config.SecurityGroupIds"
            remedy = "Name a group that opens port 22 only to your address; Ray's default opens it to all."
            yield BadInput(where, "must name a security group", "", remedy)


def _leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(tree, list):
        for value in tree:
            yield from _leaves(value, prefix)
    else:
        yield prefix, tree


def ensure_token(file: Path) -> Path:
    """Return the path of a token file; create the file with mode 0600 if it is missing.

    Several processes may call this at once: the file appears complete, and the first one is kept.
    """
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        hidden = _new_token(file)
        try:
            with suppress(FileExistsError):
                os.link(hidden, file)
        finally:
            hidden.unlink()
    return file


def renew_token(file: Path) -> None:
    """Replace the token in an existing file by a new one.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    file.stat()
    _new_token(file).replace(file)


def _new_token(file: Path) -> Path:
    """Write a token to a new hidden file in the same folder; return its path."""
    descriptor, hidden = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # of mode 0600
    with os.fdopen(descriptor, "w") as opened:
        opened.write(secrets.token_hex(32))
    return Path(hidden)
