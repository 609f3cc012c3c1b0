"""The lease of a sweep: the right to drive it, which one living process has at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from types import TracebackType

from sqlalchemy.exc import DBAPIError

from orchestrator.ledger.connect import with_retries
from orchestrator.ledger.holder import Holder, Token, busy
from orchestrator.ledger.lease_backends import (
    LIFE_SECONDS,
    FileLease,
    LeaseBackend,
    RowLease,
    file_holder,
    row_holder,
    rows_held,
)
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.schema import lock_folder
from orchestrator.ledger.sweeps.writer import SweepWriter

RENEW_SECONDS = 1.0
"""Time between two renewals: a driver notices that soon that another one has taken over."""

JOIN_SECONDS = 10.0
"""Longest wait for the renewing thread to end."""


class Lease:
    """The right to drive one sweep, held as a context manager and renewed by a thread of its own.

    Args:
        ledger: holds the sweep.
        sweep_id: of the sweep.
        on_wait: receives the reason while waiting for a dead machine's lease to expire. If None, raise Busy
            at once instead of waiting.
        on_lost: called by the renewing thread, at most once, when another process has taken the lease.
        renew_seconds: time between two renewals.

    Attributes:
        token: of this holder.
        writer: of the sweep's rows.

    Raises:
        Busy: on entering, if another living driver holds the lease.
    """

    token: Token
    writer: SweepWriter

    def __init__(
        self,
        ledger: Ledger,
        sweep_id: str,
        on_wait: Callable[[str], None] | None = None,
        on_lost: Callable[[], None] | None = None,
        *,
        renew_seconds: float = RENEW_SECONDS,
    ) -> None:
        self._ledger, self._sweep_id, self._on_lost = ledger, sweep_id, on_lost
        self._renew_seconds = renew_seconds
        self._backend: LeaseBackend
        if ledger.is_file:
            path = lock_folder(ledger.address) / sweep_id
            self._backend = FileLease(
                path, ledger.reader, ledger.writer, sweep_id, ledger.reconnect, ledger.system
            )
        else:
            self._backend = RowLease(ledger.writer, sweep_id, on_wait, ledger.system)
        self._lost, self._renewed_at = False, 0.0
        self._released = ledger.system.event()
        self._thread = ledger.system.thread(self._keep, f"lease-{sweep_id}")

    @property
    def lost(self) -> bool:
        """Whether another process is known to have taken the lease, so that this one must leave."""
        return self._lost

    @property
    def ends_at(self) -> float:
        """When the lease ends unless it is renewed, by the system's clock since the boot."""
        return self._renewed_at + LIFE_SECONDS

    def check(self) -> None:
        """Return if this process holds the lease; call it right before each effect outside the ledger.

        Wait for the ledger to answer if the lease may have expired since its last renewal, by a clock that
        goes on while the machine is suspended.

        Raises:
            Busy: another process has taken the lease.
        """
        if not self._lost and self._now() > self.ends_at:
            self._ledger.retried(self._renew)
        if self._lost:
            raise busy(self._sweep_id, holder(self._ledger, self._sweep_id))

    def __enter__(self) -> Lease:
        self._renewed_at = self._now()
        self.token = with_retries(
            self._backend.take, self._ledger.where, reconnect_seconds=0.0, system=self._ledger.system
        )
        self.writer = SweepWriter(self._ledger, self.token)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self._thread.join(JOIN_SECONDS)
        with suppress(DBAPIError):  # a server that is gone lets the row expire
            self._backend.release(self.token)

    def _keep(self) -> None:
        while not self._released.wait(self._renew_seconds) and not self._lost:
            try:
                self._renew()
            except DBAPIError:
                continue  # while the ledger does not answer, no other driver can take the lease either
        if self._lost and self._on_lost is not None:
            self._on_lost()

    def _renew(self) -> None:
        began = self._now()
        if self._backend.renew(self.token):
            self._renewed_at = began
        else:
            self._lost = True

    def _now(self) -> float:
        return self._ledger.system.since_boot()


def holder(ledger: Ledger, sweep_id: str) -> Holder | None:
    """Return the living process that drives a sweep, or None.

    Raises:
        NoDatabase: the server of the ledger stayed unreachable.
    """
    if ledger.is_file:
        return file_holder(lock_folder(ledger.address) / sweep_id)
    return ledger.retried(lambda: row_holder(ledger.writer, sweep_id, ledger.system))


def driven(ledger: Ledger, sweeps: Collection[str]) -> frozenset[str]:
    """Return those of some sweeps that a living process drives, with one query.

    Raises:
        NoDatabase: the server of the ledger stayed unreachable.
    """
    if ledger.is_file:  # a lock on a file each, which needs no query
        return frozenset(sweep for sweep in sweeps if holder(ledger, sweep) is not None)
    held = ledger.retried(lambda: rows_held(ledger.writer, ledger.system))
    return held & frozenset(sweeps)
