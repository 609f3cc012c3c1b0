"""Secrets of a process that other processes of the same user cannot read in /proc.

Linux shows the environment and the arguments with which a process was started for as long as it runs,
whatever it has changed since: a trial's code runs as the same user and could read there the passwords of the
driver, of the service and of the process that delivers to MLflow. Each of these therefore overwrites its own
secrets when it starts, and hands them to those that it starts through a pipe: the first line of their
standard input. Its memory stays as readable as that of any process of the user.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator.errors import is_named_secret, redacted

HANDED = "SWEEP_SECRETS"
"""Environment variable of a process whose first line of standard input holds more variables, as JSON."""

NOTIFY = "--notify"
"""Option whose value is a secret: the address of a webhook lets its holder post messages."""

_BLOCKS = {"arguments": (45, 46), "environment": (47, 48)}
"""Where the blocks begin and end: fields of /proc/self/stat after the name of the program."""


def is_secret(name: str, value: str) -> bool:
    """Return True if a variable holds a secret, by its name or as an address with a user or a password."""
    return is_named_secret(name) or redacted(value, secrets=()) != value


def parted(environment: Mapping[str, str]) -> tuple[dict[str, str], bytes]:
    """Return what a process of this package is started with, which must call `begin` first.

    Args:
        environment: all variables that it is to have.

    Returns:
        The environment to start it with, and what to write to its standard input before anything else.
    """
    secret = {name: value for name, value in environment.items() if is_secret(name, value)}
    return {**without_secrets(environment), HANDED: "1"}, json.dumps(secret).encode() + b"\n"


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that hold no secret."""
    return {name: value for name, value in environment.items() if not is_secret(name, value)}


def begin() -> None:
    """Take the variables that the parent of this process hands over, and conceal all secrets.

    Must be called before anything reads standard input.
    """
    if os.environ.pop(HANDED, None) is not None:
        os.environ.update(json.loads(_first_line()))
    conceal()


def conceal() -> None:
    """Overwrite the secrets among the variables and arguments with which this process was started.

    `os.environ`, `getenv` and `sys.argv` are as before. Does nothing where there is no /proc.
    """
    if sys.platform != "linux":
        return
    for name, value in os.environ.items():
        if is_secret(name, value):
            os.environ[name] = value  # a copy outside the block, for libraries that call `getenv`
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    for kind, (first, last) in _BLOCKS.items():
        start, end = int(fields[first]), int(fields[last])
        block = ctypes.string_at(start, end - start) if start else b""
        words = block.split(b"\0")
        spans = _secret_variables(words) if kind == "environment" else _secret_arguments(words)
        offsets = [0]
        for word in words:
            offsets.append(offsets[-1] + len(word) + 1)
        for index, skipped in spans:
            ctypes.memset(start + offsets[index] + skipped, ord("*"), len(words[index]) - skipped)


def _secret_variables(words: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the number of each word that holds a secret, and how many of its first bytes are none."""
    for index, word in enumerate(words):
        name, equals, value = word.partition(b"=")
        if equals and is_secret(os.fsdecode(name), os.fsdecode(value)):
            yield index, len(name) + 1


def _secret_arguments(words: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    for index, word in enumerate(words):
        text = os.fsdecode(word)
        if text.startswith(f"{NOTIFY}="):
            yield index, len(NOTIFY) + 1
        elif (index > 0 and words[index - 1] == NOTIFY.encode()) or redacted(text, secrets=()) != text:
            yield index, 0


def _first_line() -> bytes:
    """Read one line of standard input, and nothing behind it."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 1)
        if not more:
            raise EOFError(f"standard input has ended before the line that {HANDED} announces")
        line += more
    return line
