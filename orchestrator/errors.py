"""Errors that users read, and the exit codes of commands.

A refusal is shown in one line, without a traceback.

Refusal                    where, requirement, value found, remedy
+-- BadInput               a file, an option or the requested resources are wrong: exit code 2
|   +-- NotFound           the named sweep, trial, user or file does not exist: exit code 2
|   +-- NotAllowed         the role of the user does not permit the request: exit code 2
|   +-- NotSignedIn        the token is missing or invalid: exit code 2
|   +-- WrongState         the present state of the sweep does not permit the change: exit code 2
|   +-- StaleRevision      the settings were changed since they were read: exit code 2
+-- BadData                a data set is missing, truncated or not in its published format: exit code 2
+-- Busy                   another live driver holds the sweep: exit code 6
+-- OverQuota              an owner has as many sweeps as a quota allows: exit code 2
+-- TooManyRequests        a rate limit of the service is exceeded: exit code 2
+-- Damaged                stored state does not match its own digest: exit code 2
+-- DamagedCheckpoint      a checkpoint does not match its manifest: exit code 2
+-- ForeignAnswer          a process has answered a different request: exit code 2
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
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum

from trainables.errors import BadData, DamagedCheckpoint, Refusal

__all__ = [
    "RECOVER",
    "BadData",
    "BadInput",
    "Busy",
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
    "NotAllowed",
    "NotFound",
    "NotSignedIn",
    "OverQuota",
    "Refusal",
    "StaleRevision",
    "TooManyRequests",
    "WrongState",
    "exit_of",
]


class BadInput(Refusal):
    """Invalid input; raised before anything runs."""


def check_all(checks: Iterable[Callable[[], object]]) -> None:
    """Run all checks of one input.

    Raises:
        BadInput: The first mistake, with those of the other checks in `more`.
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


class NotFound(BadInput):
    """The named sweep, trial, user or file does not exist."""


class NotAllowed(BadInput):
    """The role of the user does not permit the request."""


class NotSignedIn(BadInput):
    """The token is missing or invalid."""


class WrongState(BadInput):
    """The present state of the sweep does not permit the change."""


class StaleRevision(BadInput):
    """The settings of a sweep were changed since they were read."""


class Unfinished(BadInput):
    """The process that counts networks was killed, for example by a limit of the system."""


class Busy(Refusal):
    """Another live driver holds the lease of the sweep."""


class OverQuota(Refusal):
    """The owner has as many queued and running sweeps as the quota allows; nothing is changed."""


class TooManyRequests(Refusal):
    """A rate limit of the service is exceeded; nothing is changed."""


class ForeignAnswer(Refusal):
    """A process has answered a different request; nothing is recorded."""


class Damaged(Refusal):
    """Stored state does not match its digest."""


RECOVER = "Rebuild the ledger from its backup with `recover`."
"""Remedy of a damaged ledger."""


class NoSpace(Refusal):
    """A disk is full. Every committed row is kept, and the sweep can be resumed."""


DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a full disk or an exhausted disk quota."""

DISK_LOST = frozenset(
    {errno.EIO, errno.ENODEV, errno.EROFS, errno.ENOTCONN, errno.EHOSTDOWN, errno.ESTALE, errno.EREMOTEIO}
)
"""Error numbers of a file system that has failed: a disk, a file server or a FUSE process."""


class NoStore(Refusal):
    """The shared checkpoint store cannot be read or written."""


class NoDatabase(Refusal):
    """The database server of the ledger does not answer. The command can be run again."""


class NoServer(Refusal):
    """The HTTP server of the service does not answer. The command can be run again."""


class NoGpu(Refusal):
    """JAX does not use the GPU of its worker."""


class NoCluster(Refusal):
    """Ray neither starts nor can be joined. The sweep can be resumed."""


CLASSES: Mapping[str, type[Refusal]] = {
    kind.__name__: kind
    for kind in (
        *(BadData, BadInput, Busy, Damaged, DamagedCheckpoint, NoCluster, NoDatabase, NoServer, NoSpace),
        *(NoStore, NotAllowed, NotFound, NotSignedIn, OverQuota, StaleRevision, TooManyRequests, WrongState),
    )
}
"""Classes that a client restores from the answer of a service, by name."""


def to_document(error: Refusal) -> dict[str, str]:
    """Return an error as JSON values: its four parts, and in `error` its nearest class of `CLASSES`."""
    names = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in CLASSES)
    return {"error": next(names, BadInput.__name__), **error.parts()}


def from_documents(documents: Iterable[Mapping[str, str]], other: type[Refusal] = BadInput) -> Refusal:
    """Return the first of several errors with the others in `more`; the inverse of `to_document`.

    >>> from_documents([to_document(NotFound("ada", "is not a user", "", "See `user list`."))])
    NotFound('ada', 'is not a user', '', 'See `user list`.')

    Args:
        documents: Errors in the form of `to_document`.
        other: Class of an error whose name is missing or not in `CLASSES`.

    Raises:
        KeyError: A document lacks one of the four parts.
        ValueError: The sequence of documents is empty.
    """
    names = ("where", "must", "got", "remedy")
    first, *more = (
        CLASSES.get(str(one.get("error")), other)(*(str(one[name]) for name in names)) for one in documents
    )
    first.more = more
    return first


class Exit(IntEnum):
    """Exit code of a command or a sweep.

    Attributes:
        COMPLETE: Success.
        FINDINGS: `check` has findings, or `evaluate` differs from what was recorded.
        BAD_INPUT: The input was refused before anything ran.
        SOME_FAILED: The sweep is finished, and at least one trial has failed.
        RESUMABLE: The sweep was interrupted; running it again resumes it.
        STILL_RUNNING: The command has detached from a sweep that is still running.
        BUSY: Another driver holds the sweep; nothing was changed.
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

    RESUMABLE means that the input is valid: the same command succeeds after the outage.
    """
    if isinstance(refusal, Busy):
        return Exit.BUSY
    is_outage = isinstance(refusal, NoCluster | NoDatabase | NoServer | NoSpace | NoStore)
    return Exit.RESUMABLE if is_outage else Exit.BAD_INPUT


def counted(number: float, one: str, several: str | None = None) -> str:
    """Format a count with its noun: `1 slot`, `2 slots`, `1,000 slots`, `0.5 hours`.

    Args:
        number: Count.
        one: Singular of the noun.
        several: Plural of the noun; `one` with an s if None.
    """
    written = f"{number:,}" if isinstance(number, int) else f"{number:,g}"
    return f"{written} {one if number == 1 else several or f'{one}s'}"
