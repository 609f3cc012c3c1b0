"""One driver a sweep: the right to drive it, which a dead driver cannot keep."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from orchestrator.ledger import file_lease, row_lease
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.schema import lock_folder


class LeaseBackend(Protocol):
    """How a lease is held."""

    lost: bool

    def take(self) -> None:
        """Take it, or raise Busy."""

    def release(self) -> None:
        """Give it back."""


class Lease:
    """The right to drive one sweep, held as a context.

    Args:
        ledger: that remembers the sweep.
        sweep_id: of the sweep.
        waiting: is told why it takes long, where a machine that was lost may have left a lease that is to end
            first; without it nobody waits.

    Raises:
        Busy: on entering, if another living driver holds it.
    """

    def __init__(self, ledger: Ledger, sweep_id: str, waiting: Callable[[str], None] | None = None) -> None:
        self._ledger, self._sweep_id = ledger, sweep_id
        self._grip: LeaseBackend
        if ledger.is_file:
            self._grip = file_lease.FileLease(lock_folder(ledger.address) / sweep_id, sweep_id)
        else:
            self._grip = row_lease.RowLease(ledger.writing, sweep_id, waiting)

    @property
    def lost(self) -> bool:
        """Tell whether another driver has taken over, so that this one must leave."""
        return self._grip.lost

    def __enter__(self) -> Lease:
        self._grip.take()
        if isinstance(self._grip, row_lease.RowLease):
            self._ledger.fence(self._sweep_id, self._grip.token)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ledger.fence(self._sweep_id, None)
        self._grip.release()


def holder(ledger: Ledger, sweep_id: str) -> Holder | None:
    """Return the living process that drives a sweep, or None if nobody does."""
    if ledger.is_file:
        return file_lease.holder(lock_folder(ledger.address) / sweep_id)
    return row_lease.holder(ledger.writing, sweep_id)
