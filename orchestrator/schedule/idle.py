"""Idle shutdown of engines and warm workers, which outlive their sweep."""

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
    """The reasons for which a process ends that no driver has.

    Attributes:
        seconds: Seconds for which it stays without a driver; 0 to end with the first one.
        has_device: Whether it holds a GPU in Ray's accounts; it then makes room for whatever waits for one.
    """

    seconds: float
    has_device: bool

    def is_due(self, idle_since: float, service: Holder | None) -> bool:
        """Return True if an idle process is to end.

        Args:
            idle_since: Time when its last driver gave it back, by `time.monotonic`.
            service: Service that had started this driver, or None.
        """
        return time.monotonic() - idle_since >= self.seconds or self.is_in_the_way(service)

    def is_in_the_way(self, service: Holder | None) -> bool:
        """Return True if a process must not stay, however short its time without a driver."""
        ended = service is not None and service.is_dead()
        return ended or memory_is_short() or process.terminating() or self._is_wanted()

    def _is_wanted(self) -> bool:
        return self.has_device and ray_private.wants_gpu()


def end_if_abandoned(borrower: Holder | None) -> None:
    """End this process if the driver that has it is dead: nobody will ask for its attempts again."""
    if borrower is None or borrower.is_dead():
        os._exit(1)


def watch(look: Callable[[], None], seconds: float) -> None:
    """Call a function every few seconds in a thread; end this process if it raises.

    Args:
        look: Function that ends the process if that is due.
        seconds: Seconds between two calls.
    """

    def run() -> None:
        try:
            while True:
                look()
                time.sleep(seconds)
        finally:
            os._exit(1)  # what cannot see whether it is in the way must leave

    threading.Thread(target=run, name="warmth", daemon=True).start()
