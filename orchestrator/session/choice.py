"""Which trial of a sweep is recommended."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.ledger.records import TrialRecord
from orchestrator.spec.model import Sweep


def choose(sweep: Sweep, trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the complete search trial with the best validation value; the lower number wins a tie."""
    search = [trial for trial in trials if trial.role == "search"]
    complete = [trial for trial in search if trial.state == "COMPLETE" and trial.value is not None]
    sign = 1.0 if sweep.direction == "maximize" else -1.0
    return max(complete, key=lambda trial: (sign * (trial.value or 0.0), -trial.number), default=None)
