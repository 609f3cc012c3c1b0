"""Deletes superseded checkpoints in the store, in one thread of a driver.

The commit that supersedes a checkpoint also records its deletion, so this driver or the next one retries a
failed deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.errors import Busy, NoStore
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.storage import store
from trainables.errors import Refusal

BATCH = 100
"""Maximum number of deletions in the memory of a driver; the others wait in the ledger."""

RETRY_SECONDS = 60.0
"""Wait before a driver retries a failed deletion."""

JOIN_SECONDS = 3.0
"""Maximum wait for the last deletions of a driver; the next driver continues them."""

_log = logging.getLogger(__name__)


@contextmanager
def deleting(lease: Lease, delete: Callable[[str], None] = store.delete) -> Iterator[Callable[[], None]]:
    """Delete the checkpoints that the ledger marks for deletion, in a thread; yield a function that wakes it.

    Args:
        lease: Lease of the sweep.
        delete: Function that deletes the checkpoint at a URL.
    """
    system = lease.writer.ledger.system
    wake, closed = system.event(), system.event()
    wake.set()

    def work() -> None:
        is_last = False
        while not is_last:
            wake.wait(RETRY_SECONDS)
            wake.clear()
            is_last = closed.is_set()
            try:
                while delete_batch(lease, delete) == BATCH:
                    pass
            except Busy:
                return  # another driver has the sweep, and its deletions
            except Refusal as refusal:
                _log.warning("Superseded checkpoints stay in the store for now: %s", refusal)
                closed.wait(RETRY_SECONDS)  # although it is woken twice a second

    thread = system.thread(work, "deletions")
    thread.start()
    try:
        yield wake.set
    finally:
        closed.set()
        wake.set()
        thread.join(JOIN_SECONDS)


def delete_batch(lease: Lease, delete: Callable[[str], None]) -> int:
    """Delete at most `BATCH` checkpoints; return how many were deleted.

    Raises:
        Busy: Another process has taken the lease.
        NoStore: The store does not answer, so further deletions would only time out.
    """
    sweep_id = lease.token.sweep_id
    done: list[str] = []
    targets = lease.writer.ledger.deletions(sweep_id, BATCH)
    if targets:
        lease.writer.ledger.flush()  # after a power failure no row may refer to what was deleted
    for target in targets:
        lease.check()
        try:
            delete(target)
            done.append(target)
        except NoStore:
            lease.writer.end_deletions(done, [target])
            raise
    if done:
        lease.writer.end_deletions(done, [])
    return len(done)
