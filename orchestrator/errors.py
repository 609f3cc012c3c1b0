"""What users read when something is wrong: refusals, exit codes, and texts without secrets.

A refusal is shown in one line, without a traceback.

Refusal                    where - what must hold - what was found - what would be right
+-- BadInput               a file, an option or the requested resources are wrong: exit code 2
|   +-- Changed            what is to be changed is no longer as it was read: exit code 2
+-- BadData                a data set is missing, truncated or not in its published format: exit code 2
+-- Busy                   another live driver holds the sweep: exit code 6
+-- OverQuota              an owner has as many sweeps as a quota allows: exit code 2
+-- Damaged                stored state does not match its own digest: exit code 2
+-- DamagedCheckpoint      a checkpoint does not match its manifest: exit code 2
+-- ForeignAnswer          a process has answered another question than the one it was asked: exit code 2
+-- NoSpace                a disk is full: every committed row is kept, exit code 4
+-- NoStore                the shared checkpoint store cannot be read or written: an attempt is retried; a
|                          command ends with exit code 4
+-- NoDatabase             the ledger's server does not answer: a driver that runs waits; a command ends with
|                          exit code 4
+-- NoServer               the HTTP server of a service does not answer: exit code 4
+-- NoGpu                  a worker cannot use the GPU that it was given: its attempt fails
+-- NoCluster              Ray does not start or cannot be joined: every committed row is kept, exit code 4
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cache
from pathlib import Path

from trainables.errors import BadData, DamagedCheckpoint, Refusal

__all__ = [
    "BadData",
    "BadInput",
    "Busy",
    "Changed",
    "Damaged",
    "DamagedCheckpoint",
    "Exit",
    "ForeignAnswer",
    "NoCluster",
    "NoDatabase",
    "NoGpu",
    "NoServer",
    "NoSpace",
    "NoStore",
    "OverQuota",
    "Refusal",
    "exit_of",
    "redacted",
]


class BadInput(Refusal):
    """Raised before anything runs, for input that cannot be right."""

    @classmethod
    def of_all(cls, mistakes: Iterable[Mapping[str, str]]) -> BadInput:
        """Return the first of some mistakes, with the others as its `more`; each as `parts` returns it."""
        first, *more = (cls(**mistake) for mistake in mistakes)
        first.more = more
        return first


def check_all(checks: Iterable[Callable[[], object]]) -> None:
    """Run checks of one input.

    Raises:
        BadInput: the first mistake, with those of the other checks as its `more`.
    """
    wrong: list[Refusal] = []
    for check in checks:
        try:
            check()
        except BadInput as mistake:
            wrong += mistake.all()
    if wrong:
        wrong[0].more = wrong[1:]
        raise wrong[0]


class Changed(BadInput):
    """Raised for a change of what has been changed since it was read."""


class Unfinished(BadInput):
    """Raised if the process that counts networks was ended before it had, as at a limit of the system."""


class Busy(Refusal):
    """Raised when another live driver holds the lease of a sweep."""


class OverQuota(Refusal):
    """Raised when an owner has as many sweeps that wait or run as a quota allows; nothing is changed."""


class ForeignAnswer(Refusal):
    """Raised when a process has answered another question than the one it was asked; nothing is recorded."""


class Damaged(Refusal):
    """Raised when stored state does not match its own digest."""


class NoSpace(Refusal):
    """Raised when a disk is full; every committed row is kept, and the sweep can be resumed."""


DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Numbers of the OSErrors that mean a full disk, or a quota that is used up."""

DISK_LOST = frozenset(
    {errno.EIO, errno.ENODEV, errno.EROFS, errno.ENOTCONN, errno.EHOSTDOWN, errno.ESTALE, errno.EREMOTEIO}
)
"""Numbers of the OSErrors of a file system that is out: a failed disk or file server, a dead FUSE process."""


class NoStore(Refusal):
    """Raised when the shared checkpoint store cannot be read or written."""


class NoDatabase(Refusal):
    """Raised when the server of the ledger does not answer; the command can be run again."""


class NoServer(Refusal):
    """Raised when the HTTP server of a service does not answer; the command can be run again."""


class NoGpu(Refusal):
    """Raised in a worker when JAX does not use the GPU that the worker was given."""


class NoCluster(Refusal):
    """Raised when Ray neither starts nor can be joined; the sweep can be resumed."""


class Exit(IntEnum):
    """How a command or a sweep has ended.

    Attributes:
        COMPLETE: everything was done.
        FINDINGS: `check` has found something, or `evaluate` other numbers than recorded.
        BAD_INPUT: the input was refused before anything ran.
        SOME_FAILED: the sweep is finished, and some of its trials, or all, have failed.
        RESUMABLE: the sweep was interrupted; running it again resumes it.
        STILL_RUNNING: the sweep is still running, without this command.
        BUSY: another driver holds the sweep; nothing was changed.
    """

    COMPLETE = 0
    FINDINGS = 1
    BAD_INPUT = 2
    SOME_FAILED = 3
    RESUMABLE = 4
    STILL_RUNNING = 5
    BUSY = 6


def exit_of(refusal: Refusal) -> Exit:
    """Return the exit code of a command that ends with a refusal.

    RESUMABLE means that nothing is wrong with the input: the same command succeeds once what is out is back.
    """
    if isinstance(refusal, Busy):
        return Exit.BUSY
    is_outage = isinstance(refusal, NoCluster | NoDatabase | NoServer | NoSpace | NoStore)
    return Exit.RESUMABLE if is_outage else Exit.BAD_INPUT


_USER_OF_URL = re.compile(r"(?<=://)[^/?#\s]*@")
_NAMED_SECRET = re.compile(
    r"SECRET|TOKEN|PASS(W|PHRASE|$)|_PWD$|CREDENTIAL|KEYS?$|WEBHOOK|CONNECTION_STRING|^SWEEP_NOTIFY$",
    re.IGNORECASE,
)
_NAMED_SETTING = re.compile(
    r"TOKENIZER|(MAX|MIN|NUM|N|NEW|TOTAL|CONTEXT|SPECIAL|STOP|PAD|BATCH)_(\w+_)?TOKENS$|(BY|COM)PASS$"
    r"|(PRIMARY|FOREIGN|SORT|HOT|CACHE|PARTITION)_?KEYS?$|(MON|DON)KEYS?$",
    re.IGNORECASE,
)
"""Settings of training and of data whose names hold a word of `_NAMED_SECRET`."""
_PLAIN = re.compile(
    r"true|false|yes|no|on|off|none|null|auto|[-+]?\d{1,6}|[-+]?\d{0,6}\.\d{1,6}(e[-+]?\d{1,3})?",
    re.IGNORECASE,
)
_NAMED_PATH = re.compile(r"(PATH|FILE|DIR|FOLDER)$", re.IGNORECASE)
SHORTEST = 8
"""Characters of the shortest secret; shorter values would be removed from ordinary words."""


def redacted(text: str, secrets: Sequence[str] | None = None) -> str:
    """Return a text without the users and passwords of addresses, and without secrets.

    Args:
        text: to be shown or stored.
        secrets: from `secrets_of_environment`, to redact many texts; None to look them up.
    """
    for secret in secrets_of_environment() if secrets is None else secrets:
        text = text.replace(secret, "***")
    return _USER_OF_URL.sub("", text)


def secrets_of_environment() -> list[str]:
    """Return the values of variables that are named like a secret; a path to one is not secret itself."""
    named = [(name, os.environ.get(name, "")) for name in os.environ if is_named_secret(name)]
    long = [(name, value) for name, value in named if len(value) >= SHORTEST]
    return [value for name, value in long if not is_plain(value) and not _is_path(name, value)]


@cache  # texts are redacted for every event and log line, and the environment has a hundred names
def is_named_secret(name: str) -> bool:
    """Return True if a variable of this name holds a secret, unless its value is plain."""
    return bool(_NAMED_SECRET.search(name)) and not _NAMED_SETTING.search(name)


def is_plain(value: str) -> bool:
    """Return True if a value is a flag or a short number, and so no secret whatever its name is."""
    return bool(_PLAIN.fullmatch(value))


def _is_path(name: str, value: str) -> bool:
    # A secret in base64 can begin with a slash too.
    return bool(_NAMED_PATH.search(name)) or (value.startswith("/") and Path(value).exists())
