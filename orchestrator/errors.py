"""What users read when something is wrong: refusals, exit codes, and texts without secrets.

A refusal is shown in one line, without a traceback.

Refusal                    where - what must hold - what was found - what would be right
+-- BadInput               a file, an option or the requested resources are wrong: exit code 2
|   +-- StaleRevision      what is to be changed is no longer as it was read: exit code 2
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
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum

from trainables.errors import BadData, DamagedCheckpoint, Refusal

__all__ = [
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
    "OverQuota",
    "Refusal",
    "StaleRevision",
    "exit_of",
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


class StaleRevision(BadInput):
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


def counted(number: float, one: str, several: str | None = None) -> str:
    """Format a number of things: `1 slot`, `2 slots`, `1,000 slots`, `0.5 hours`.

    Args:
        number: of the things.
        one: what follows the number 1.
        several: what follows any other number; `one` with an s if None.
    """
    written = f"{number:,}" if isinstance(number, int) else f"{number:,g}"
    return f"{written} {one if number == 1 else several or f'{one}s'}"
