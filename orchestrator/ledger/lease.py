"""The lease of a sweep: the right to drive it, which one living process has at a time."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from orchestrator.ledger.lease_backends import (
    FileLease,
    Holder,
    LeaseBackend,
    RowLease,
    file_holder,
    row_holder,
)
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.schema import lock_folder


class Lease:
    """The right to drive one sweep, held as a context manager.

    Args:
        ledger: holds the sweep.
        sweep_id: of the sweep.
        on_wait: receives the reason while waiting for a dead machine's lease to expire. If None, raise Busy
            at once instead of waiting.

    Raises:
        Busy: on entering, if another living driver holds the lease.
    """

    def __init__(self, ledger: Ledger, sweep_id: str, on_wait: Callable[[str], None] | None = None) -> None:
        self._ledger, self._sweep_id = ledger, sweep_id
        self._backend: LeaseBackend
        if ledger.is_file:
            self._backend = FileLease(lock_folder(ledger.address) / sweep_id, sweep_id)
        else:
            self._backend = RowLease(ledger.writer, sweep_id, on_wait)

    @property
    def lost(self) -> bool:
        """Whether another driver has taken over, so that this one must leave."""
        return self._backend.lost

    def __enter__(self) -> Lease:
        self._backend.take()
        if isinstance(self._backend, RowLease):
            self._ledger.fence(self._sweep_id, self._backend.token)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ledger.fence(self._sweep_id, None)
        self._backend.release()


def holder(ledger: Ledger, sweep_id: str) -> Holder | None:
    """Return the living process that drives a sweep, or None."""
    if ledger.is_file:
        return file_holder(lock_folder(ledger.address) / sweep_id)
    return row_holder(ledger.writer, sweep_id)
