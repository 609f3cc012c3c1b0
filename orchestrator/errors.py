"""Every refusal of the service, read by users in one line without a traceback, and every exit code.

Refusal                    where - what must hold - what was found - what would be right
+-- BadInput               a file, an option or the requested resources are wrong: exit code 2
+-- BadData                a data set is missing, truncated or not in its published format: exit code 2
+-- Busy                   another live driver holds the sweep: exit code 2
+-- Damaged                stored state does not match its own digest: exit code 2
+-- DamagedCheckpoint      a checkpoint does not match its manifest: exit code 2
+-- NoSpace                a disk is full: every committed row is kept, exit code 4
+-- NoStore                the shared checkpoints cannot be reached: the attempt is retried
+-- NoCluster              Ray does not start or cannot be joined: every committed row is kept, exit code 4
"""

from __future__ import annotations

from enum import IntEnum

from trainables.errors import BadData, DamagedCheckpoint, Refusal

__all__ = [
    "BadData",
    "BadInput",
    "Busy",
    "Damaged",
    "DamagedCheckpoint",
    "Exit",
    "NoCluster",
    "NoSpace",
    "NoStore",
    "Refusal",
]


class BadInput(Refusal):
    """Raised before anything runs, for input that cannot be right."""


class Busy(Refusal):
    """Raised when another live driver holds the lease of a sweep."""


class Damaged(Refusal):
    """Raised when stored state does not match its own digest."""


class NoSpace(Refusal):
    """Raised when a disk is full; every committed row is kept, and the sweep can be resumed."""


class NoStore(Refusal):
    """Raised by a worker that cannot copy a checkpoint to the shared store, or from it."""


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
    """

    COMPLETE = 0
    FINDINGS = 1
    BAD_INPUT = 2
    SOME_FAILED = 3
    RESUMABLE = 4
    STILL_RUNNING = 5
