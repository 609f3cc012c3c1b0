"""Outages of the checkpoint store and full disks, which pause a sweep until they are over.

No trial is charged for an outage. During an outage nothing is launched, the ledger shows the sweep as PAUSED
with the reason, and a probe checks repeatedly whether the outage is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue

from orchestrator.errors import NoDatabase, NoStore
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.storage import store
from orchestrator.storage.paths import Paths

PROBE_SECONDS, PROBE_CAP_SECONDS = 5.0, 60.0
"""Time to the first probe, and the cap of the interval, which doubles after each failed probe."""

WHAT: Mapping[str, str] = {
    "store lost": "the checkpoint store does not answer",
    "disk full": "a disk is full",
}
"""Reason of the pause, by the cause of an attempt's end."""

Probe = Callable[[], bool]
"""Function that returns True if an outage is over; it may block until its timeouts."""


def probes_of(paths: Paths, ledger: Ledger, sweep_id: str) -> dict[str, Probe]:
    """Return the probe of each cause of an outage."""
    return {
        "store lost": partial(_is_store_back, paths, ledger, sweep_id),
        "disk full": partial(store.has_space, paths.root),
    }


def _is_store_back(paths: Paths, ledger: Ledger, sweep_id: str) -> bool:
    """Return True if the store answers and contains the folder of a trial with checkpoints, if there is one.

    A missing folder shows that the disk is not mounted, although a probe can write to the empty mount point.
    """
    if not store.answers(paths.store or paths.root.as_uri()):
        return False
    try:
        keys = {checkpoint.trial_key for checkpoint in ledger.checkpoints(sweep_id)}
        folders = [
            paths.stored(ledger.id, sweep_id, key) or paths.trial_checkpoints(sweep_id, key).as_uri()
            for key in keys
        ]
        return not folders or any(map(store.is_mounted, folders))
    except (NoDatabase, NoStore):
        return False


class Outages:
    """Detects the end of an outage that pauses a sweep.

    Args:
        writer: Writer of the sweep.
        probes: Probes by cause.
        clock: Clock of the session, in seconds.
        background: Function that runs a probe without blocking the caller; by default in a new thread.

    Attributes:
        reason: Reason and start of the pause, or None.
    """

    def __init__(
        self,
        writer: SweepWriter,
        probes: Mapping[str, Probe],
        clock: Callable[[], float],
        background: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._writer, self._probes, self._clock = writer, probes, clock
        self._background = background or (lambda work: writer.ledger.system.thread(work, "probe").start())
        self.reason: str | None = None
        self._cause = ""
        self._interval, self._due, self._ended_at = PROBE_SECONDS, 0.0, float("-inf")
        self._answers: SimpleQueue[bool] = SimpleQueue()
        self._probing = False

    def begin(self, cause: str, message: str | None) -> None:
        """Pause the sweep, unless it is paused already."""
        if self.reason is not None:
            return
        now = self._clock()
        if now - self._ended_at > PROBE_CAP_SECONDS:
            self._interval = PROBE_SECONDS
        since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(self._writer.ledger.now()))
        self.reason = f"{WHAT[cause]} since {since}" + (f": {message}" if message else "")
        self._cause, self._due = cause, now + self._interval
        self._writer.set_sweep_state("PAUSED", self.reason)

    def poll(self) -> None:
        """Start a probe if one is due; end the pause if a probe has succeeded."""
        if self.reason is None:
            return
        if self._probing:
            self._read_answer()
        elif self._clock() >= self._due:
            self._probing = True
            self._background(self._probe)

    def _probe(self) -> None:
        self._answers.put(self._probes[self._cause]())

    def _read_answer(self) -> None:
        if self._answers.empty():
            return
        self._probing = False
        now = self._clock()
        self._interval = min(2 * self._interval, PROBE_CAP_SECONDS)
        if self._answers.get():
            self.reason, self._ended_at = None, now
            self._writer.set_sweep_state("RUNNING")
        else:
            self._due = now + self._interval
