"""Refusals of the service; the root, `Refusal`, is shared with the science.

Refusal
+-- BadInput               the file, an option or the resources asked for are wrong: exit code 2
+-- Busy                   another live driver holds the sweep: exit code 2
+-- Damaged                stored state does not match its own digest
+-- NoSpace                a disk is full: what was committed stands, exit code 4
+-- NoStore                the shared checkpoints are out of reach: the attempt is retried
+-- NoCluster              Ray does not start or cannot be joined: what was committed stands, exit code 4
"""

from __future__ import annotations

from trainables.errors import Refusal


class BadInput(Refusal):
    """Raised before anything runs, for input that cannot be right."""


class Busy(Refusal):
    """Raised when another live driver holds the lease of a sweep."""


class Damaged(Refusal):
    """Raised when stored state fails its own digest."""


class NoSpace(Refusal):
    """Raised when a disk is full; what was committed before stands, and the sweep can go on later."""


class NoStore(Refusal):
    """Raised by a worker that cannot bring a checkpoint to the shared store, or from it."""


class NoCluster(Refusal):
    """Raised when Ray neither starts nor can be joined; the sweep can go on later."""
