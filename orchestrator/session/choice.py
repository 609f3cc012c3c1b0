"""Which trial of a sweep is recommended."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.records import TrialRecord


def choose(sweep: SweepConfig, trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the complete search trial with the best validation value; the lower number wins a tie."""
    search = [trial for trial in trials if trial.role == "search"]
    complete = [trial for trial in search if trial.state == "COMPLETE" and trial.value is not None]
    sign = 1.0 if sweep.direction == "maximize" else -1.0
    return max(complete, key=lambda trial: (sign * (trial.value or 0.0), -trial.number), default=None)
