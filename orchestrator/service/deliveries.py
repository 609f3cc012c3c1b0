"""Delivery of ended sweeps' pending records to MLflow, in a thread of the service.

A driver leaves when MLflow has not answered for a while, and no driver starts again for an ended sweep. The
service then delivers, and holds the lease of the sweep so that no other process does. It returns the lease at
once when the sweep is submitted again. Only submitted sweeps are delivered, because their drivers had the
environment of a service, and with it the address of MLflow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing

from orchestrator.errors import BadInput, Busy, NoDatabase
from orchestrator.json_log import LogLine
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue.submissions import has_ended, left_undelivered
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.process_secrets import redacted
from orchestrator.storage.paths import Paths
from orchestrator.system import System
from orchestrator.tracking import address
from orchestrator.tracking.shipper import Shipper, Timeouts

_log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""Interval of the search for ended sweeps with pending records."""

LONGEST_RETRY_SECONDS = 300.0
"""Cap of the backoff after a failed delivery, which starts at `LOOK_SECONDS`."""

HELD_SECONDS = 60.0
"""Longest time for which the lease of a sweep is held, because no other process can change the sweep
meanwhile."""

_PACE = Timeouts(goodbye=1.0)
"""Timeouts of a delivery: a short one at the end, so that a driver need not wait; unanswered records are
resent."""


class Deliveries:
    """Delivers the pending records of ended sweeps to MLflow. No method raises; only `close` waits.

    Args:
        paths: Paths of the ledger and of MLflow.
        system: System of this process.
        say: Function that receives a line when all records of a sweep are delivered, and when deliveries
            fail.
    """

    def __init__(self, paths: Paths, system: System, say: Callable[[str], None]) -> None:
        self._paths, self._system, self._say = paths, system, say
        self._over = system.event()
        self._thread = system.thread(self._run, "mlflow-deliveries")
        self._failures = 0
        self._refused: list[str] = []
        """Sweeps with failed deliveries, the latest failure last; other sweeps come before them."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and the delivering process; pending records stay in the ledger."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        wait = LOOK_SECONDS
        while not self._over.wait(wait):
            try:
                # The service's own ledger object would wait for a server that is down, and report it twice.
                url, system = self._paths.ledger_url, self._system
                with closing(Ledger.open(url, create=False, system=system, reconnect_seconds=0.0)) as ledger:
                    wait = self._round(ledger)
            except (BadInput, NoDatabase):  # the database does not answer
                wait = LOOK_SECONDS
            except Exception as error:  # noqa: BLE001 - no failure of tracking may end the service
                _log.warning("Records of ended sweeps cannot be delivered: %s", redacted(str(error)))
                wait = LONGEST_RETRY_SECONDS

    def _round(self, ledger: Ledger) -> float:
        """Deliver until MLflow stops accepting records; return the seconds until the next round."""
        for sweep_id in in_turn(left_undelivered(ledger), self._refused):
            taken = self._deliver(ledger, sweep_id) if address.is_reached(self._paths.tracking_uri) else 0
            if self._over.is_set():
                break
            if taken == 0:
                return self._failed(sweep_id)
            if taken is not None:
                self._failures = 0
                self._refused = [other for other in self._refused if other != sweep_id]
        return LOOK_SECONDS

    def _failed(self, sweep_id: str) -> float:
        """Count a failed delivery; return the backoff in seconds."""
        self._failures += 1
        if self._failures == 1:
            line = f"{sweep_id}: MLflow accepts no records; retrying later."
            self._say(LogLine(line, "undelivered", sweep_id))
        self._refused = [*(other for other in self._refused if other != sweep_id), sweep_id]
        return min(LONGEST_RETRY_SECONDS, LOOK_SECONDS * 2.0 ** min(self._failures, 30))

    def _deliver(self, ledger: Ledger, sweep_id: str) -> int | None:
        """Return the number of records of a sweep that MLflow has accepted within `HELD_SECONDS`.

        None if another process drives the sweep, or it was submitted again.
        """

        def must_leave() -> bool:
            return self._over.is_set() or not has_ended(ledger, sweep_id)

        try:
            with Lease(ledger, sweep_id) as lease:
                before = ledger.backlog(sweep_id)
                if must_leave() or not before:
                    return None
                paths = self._paths
                with closing(Shipper(lease, paths.tracking_uri, paths.artifacts, pace=_PACE)) as shipper:
                    shipper.start()
                    after = shipper.drain(HELD_SECONDS, must_leave)
        except Busy:
            return None
        if not after:
            line = f"{sweep_id}: delivered {before} pending records to MLflow."
            self._say(LogLine(line, "delivered", sweep_id))
        return before - after if after < before or not must_leave() else None


def in_turn(left: Sequence[str], refused: Sequence[str]) -> list[str]:
    """Return sweeps in the order of their delivery: sweeps with failed deliveries are last.

    Among those, the latest failure is last.
    """
    places = {sweep_id: place for place, sweep_id in enumerate(refused, start=1)}
    return sorted(left, key=lambda sweep_id: places.get(sweep_id, 0))
