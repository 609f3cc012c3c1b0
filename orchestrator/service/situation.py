"""The observed state of a submission and its sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.ledger.queue.submissions import ROOM, Submission
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP, SweepRecord
from orchestrator.sharing.pool_rows import PriorityClass

Process = Literal["none", "alive", "dead", "elsewhere"]
"""State of the newest driver's process: not begun, running, ended, or started where its end cannot be
observed: on another machine, before the last boot of this machine, or in another container."""


@dataclass(frozen=True)
class Situation:
    """A submission and the observed state of its sweep.

    Attributes:
        submission: Submission that has not ended.
        sweep: Row of the sweep, or None before a driver has written it.
        is_driven: Whether a living process holds the lease of the sweep.
        process: State of the newest driver's process.
        stopped_by: Name of the machine that requested the sweep's stop, `ROOM` for the service, or None.
        reported_at: Time of the newest report by the clock of its driver, in seconds since the epoch; 0
            without reports. Only the order of such times has a meaning.
        heard_at: Time when this service first saw that report or its absence, by the clock of `submission`.
        priority_class: Priority class of the sweep.
        share: Number of trials that the pool grants, or would grant, to the sweep at once; None if unknown.
        held: Number of trials that run or are about to run.
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
        return before is not None and self.reported_at > before

    @property
    def is_finished(self) -> bool:
        """Return True if a driver has concluded the sweep, perhaps before an extension or a retry."""
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
        """Return True if the service has preempted the driver."""
        return self.stopped_by == ROOM

    @property
    def is_stopped(self) -> bool:
        """Return True if a person has stopped the sweep."""
        return self.stopped_by is not None and not self.makes_room
