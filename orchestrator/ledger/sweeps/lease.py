"""Lease of a sweep: the exclusive right of one process to drive it."""

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
"""Seconds between two renewals, after which a driver notices that another one has taken over."""

JOIN_SECONDS = 10.0
"""Maximum wait for the renewing thread to end."""


class Lease:
    """Lease of a sweep, a context manager that renews it in a thread.

    >>> with Lease(ledger, "listops-1") as lease:  # doctest: +SKIP
    ...     lease.writer.set_sweep_state("RUNNING")
    ...     lease.check()  # before an effect outside the ledger

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep.
        on_wait: Function that receives the reason while the lease of a dead machine has not expired yet; None
            to raise Busy instead of waiting.
        on_lost: Function that the renewing thread calls once another process has taken the lease.
        renew_seconds: Seconds between two renewals.

    Attributes:
        token: Token of this holder.
        writer: Writer of the sweep.

    Raises:
        Busy: On entering, if another living driver holds the lease.
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
        """Whether another process is known to have taken the lease, so that this one must end."""
        return self._lost

    @property
    def ends_at(self) -> float:
        """Expiry of the lease unless it is renewed, by the system's clock since the boot."""
        return self._renewed_at + LIFE_SECONDS

    def check(self) -> None:
        """Check that this process holds the lease, right before an effect outside the ledger.

        If the lease may have expired since its last renewal, by a clock that includes suspension of the
        machine, this waits for the ledger to answer.

        Raises:
            Busy: Another process has taken the lease.
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
        NoDatabase: The server of the ledger stayed unreachable.
    """
    if ledger.is_file:
        return file_holder(lock_folder(ledger.address) / sweep_id)
    return ledger.retried(lambda: row_holder(ledger.writer, sweep_id, ledger.system))


def driven(ledger: Ledger, sweeps: Collection[str]) -> frozenset[str]:
    """Return the sweeps among these that a living process drives, with one query.

    Raises:
        NoDatabase: The server of the ledger stayed unreachable.
    """
    if ledger.is_file:  # a lock on a file each, which needs no query
        return frozenset(sweep for sweep in sweeps if holder(ledger, sweep) is not None)
    held = ledger.retried(lambda: rows_held(ledger.writer, ledger.system))
    return held & frozenset(sweeps)
