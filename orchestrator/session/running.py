"""An attempt that a worker holds, as the driver remembers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.assignment import Outcome
from orchestrator.ledger.records import TrialRecord


@dataclass
class Running:
    """An attempt that a worker holds.

    Attributes:
        trial: the trial's row as it was when the attempt started.
        resumed: checkpoint folder that it went on from, or None.
        step: last step reported.
        best: best validation value so far, or None.
        best_step: its step.
        best_metrics: all that was reported with it.
        reported_at: time of the launch, then of the last sign of life, by the session's clock.
        last: the last outcome, or None.
        cause: why the driver itself ended the attempt, if it did.
        started: whether a worker has taken it; until then it waits for its resources.
    """

    trial: TrialRecord
    resumed: str | None
    step: int
    best: float | None
    best_step: int | None
    reported_at: float
    best_metrics: Mapping[str, float] | None = None
    last: Outcome | None = None
    cause: str | None = None
    started: bool = False
