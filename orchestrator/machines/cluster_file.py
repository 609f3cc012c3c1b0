"""What a cluster file must not do: hold a key, name one that others can read, or open the cluster to all.

Secrets and open doors are found by line, in any kind of file; the rest only a file of `ray up` has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orchestrator.errors import BadInput

ModeOf = Callable[[str], int | None]
"""Tells the permission bits of a file of this machine; None if there is none."""

TOKEN = "ray-token"
UNFILLED = "FILL-IN"

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


def problems_of_text(name: str, text: str) -> Iterator[BadInput]:
    """Yield what is wrong with any file that brings a cluster up.

    Args:
        name: of the file.
        text: of the file.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        where, told = f"{name}:{number}", line.partition(" #")[0]
        if told.lstrip().startswith("#"):
            continue
        for what, pattern in _SECRETS.items():
            if pattern.search(told):
                remedy = "Name a file that holds it, of mode 0600."
                yield BadInput(where, "must not hold what gives access", what, remedy)
        if _OPEN.search(told) or _DASHBOARD.search(told):
            remedy = "Name your own network, and 127.0.0.1 for the dashboard: an SSH tunnel reaches it."
            yield BadInput(where, "must not open the cluster to the world", f"`{told.strip()}`", remedy)
        if _NO_TOKEN.search(told):
            remedy = "Say RAY_AUTH_MODE=token."
            yield BadInput(where, "must not turn the token off", f"`{told.strip()}`", remedy)


def is_for_ray_up(text: str) -> bool:
    """Tell whether a file is one of `ray up`, and none of Kubernetes or Slurm."""
    return re.search(r"^provider:", text, re.MULTILINE) is not None


def problems(name: str, document: Mapping[str, Any], mode_of: ModeOf) -> Iterator[BadInput]:
    """Yield what is wrong with a file of `ray up`, beside what its text tells.

    Args:
        name: of the file.
        document: its content.
        mode_of: looks at files that it names.
    """
    for key, value in _leaves(document):
        if UNFILLED in str(value):
            yield BadInput(
                f"{name}: {key}", "must be filled in", f"`{value}`", "The comment beside it says how."
            )
    if key := document.get("auth", {}).get("ssh_private_key"):
        yield from _private(f"{name}: auth.ssh_private_key", key, mode_of)
    mounts = document.get("file_mounts") or {}
    for there, here in mounts.items():
        if _SECRET_FILE.search(str(here)):
            yield from _private(f"{name}: file_mounts.{there}", here, mode_of)
        elif mode_of(here) is None:
            remedy = f"Run `mkdir -p {here}`, or leave it out."
            yield BadInput(f"{name}: file_mounts.{there}", "must be here to be copied", f"no {here}", remedy)
    if not any(str(there).endswith(TOKEN) for there in mounts):
        remedy = f"Mount one: ~/sweeps/mlruns/{TOKEN}: mlruns/{TOKEN}."
        yield BadInput(f"{name}: file_mounts", "must bring a token to every node", "none", remedy)
    if document.get("provider", {}).get("type") == "aws":
        yield from _aws(name, document.get("available_node_types") or {})


def _private(where: str, path: str, mode_of: ModeOf) -> Iterator[BadInput]:
    mode = mode_of(path)
    if mode is None:
        is_token = path.endswith(TOKEN)
        remedy = "Run `cluster token`." if is_token else "Name the file that you log in with."
        yield BadInput(where, "must be a file that is there", f"no {path}", remedy)
    elif mode & 0o077:
        remedy = f"Run `chmod 600 {path}`."
        yield BadInput(where, "must be for its owner's eyes only", f"mode {mode:04o}", remedy)


def _aws(name: str, node_types: Mapping[str, Any]) -> Iterator[BadInput]:
    for kind, node in node_types.items():
        if not (node.get("node_config") or {}).get("SecurityGroupIds"):
            where = f"{name}: available_node_types.{kind}.node_config.SecurityGroupIds"
            remedy = "Name one that lets port 22 in from your address alone; Ray's own lets everybody in."
            yield BadInput(where, "must name a security group", "none", remedy)


def _leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(tree, list):
        for value in tree:
            yield from _leaves(value, prefix)
    else:
        yield prefix, tree
