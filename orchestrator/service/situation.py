"""A submission and what the service observes of its sweep at a moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.ledger.queue.submissions import ROOM, Submission
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP, SweepRecord
from orchestrator.sharing.pool_rows import PriorityClass

Process = Literal["none", "alive", "dead", "elsewhere"]
"""The process of the newest driver: it has not begun, it runs, it has ended, or it was started on another
machine, before the last boot of this machine, or in another container, where its end cannot be observed."""


@dataclass(frozen=True)
class Situation:
    """A submission and the observed state of its sweep.

    Attributes:
        submission: Submission that has not ended.
        sweep: The row of its sweep, or None if no driver has written it yet.
        is_driven: Whether a living process holds the lease of the sweep.
        process: Process of the newest driver that the service has started.
        stopped_by: Name of the machine that asked the sweep to stop, `ROOM` if the service did, or None.
        reported_at: Time of the newest report, by the clock of its driver, seconds since the epoch; 0 without
            reports. Only the order of such times has a meaning.
        heard_at: Time when this service has first seen that report, or that there is none, by the clock of
            `submission`.
        priority_class: Priority class of the sweep.
        share: Trials that the pool of the service's drivers has for the sweep at once, or would have once its
            driver runs; None if that is not known.
        held: Trials that run or are about to.
    """

    submission: Submission
    sweep: SweepRecord | None = None
    is_driven: bool = False
    process: Process = "none"
    stopped_by: str | None = None
    reported_at: float = 0.0
    heard_at: float = 0.0
    priority_class: PriorityClass = "normal"
    share: int | None = None
    held: int = 0

    @property
    def has_reported(self) -> bool:
        """Return True if the newest driver has committed a report."""
        before = self.submission.reported_before
        if before is None:  # it was started before the service wrote this down
            before = self.submission.started_at
        return before is not None and self.reported_at > before

    @property
    def is_finished(self) -> bool:
        """Return True if a driver has concluded the sweep, perhaps before it was extended or retried."""
        return self.sweep is not None and self.sweep.state in FINISHED_SWEEP

    @property
    def is_concluded(self) -> bool:
        """Return True if the newest driver, or a later process, has concluded the sweep."""
        before = self.submission.finished_before
        return self.is_finished and self.sweep is not None and self.sweep.finished_at != before

    @property
    def is_starting(self) -> bool:
        """Return True if the newest driver was started and has not taken the lease yet."""
        may_run = self.process in {"none", "alive"}
        return (
            self.submission.state == "STARTED"
            and not self.is_driven
            and may_run
            and self.submission.code is None
        )

    @property
    def makes_room(self) -> bool:
        """Return True if the service has asked the driver to leave its place to another one."""
        return self.stopped_by == ROOM

    @property
    def is_stopped(self) -> bool:
        """Return True if a person has asked the sweep to stop."""
        return self.stopped_by is not None and not self.makes_room
