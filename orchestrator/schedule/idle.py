"""Idle shutdown of processes that outlive their sweep: engines and warm workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.ledger.holder import Holder
from orchestrator.machines.idle_timeout import memory_is_short
from orchestrator.provenance import code_digest
from orchestrator.schedule import ray_private
from orchestrator.training import process

CODE = code_digest()
"""Digest of the code on disk when this process began to import the project."""


@dataclass(frozen=True)
class IdleShutdown:
    """Rules for the exit of a process without a driver.

    Attributes:
        seconds: Idle timeout; 0 to end with the first driver.
        has_device: Whether the process holds a GPU in Ray's accounting; it then exits when anything waits for
            one.
    """

    seconds: float
    has_device: bool

    def is_due(self, idle_since: float, service: Holder | None) -> bool:
        """Return True if a process that is idle since a time of `time.monotonic` must exit."""
        return time.monotonic() - idle_since >= self.seconds or self.is_in_the_way(service)

    def is_in_the_way(self, service: Holder | None) -> bool:
        """Return True if an idle process must exit before its timeout."""
        ended = service is not None and service.is_dead()
        if ended or memory_is_short() or process.terminating():
            return True
        return self.has_device and ray_private.wants_gpu()


def end_if_abandoned(borrower: Holder | None) -> None:
    """Exit if the borrower is dead, because its attempts are lost."""
    if borrower is None or borrower.is_dead():
        os._exit(1)


def watch(look: Callable[[], None], seconds: float) -> None:
    """Call a function every `seconds` in a thread; exit if it raises."""

    def run() -> None:
        try:
            while True:
                look()
                time.sleep(seconds)
        finally:
            os._exit(1)  # without these checks the process could keep its GPU for ever

    threading.Thread(target=run, name="warmth", daemon=True).start()
