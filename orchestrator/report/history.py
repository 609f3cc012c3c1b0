"""The history of one sweep: everything that the ledger holds of it. Every report is a function of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import (
    AttemptRecord,
    CheckpointRecord,
    EvaluationRecord,
    ReportRecord,
    SweepRecord,
    TrialRecord,
    by_trial,
)
from orchestrator.ledger.selection import Constraints, total_violation


@dataclass(frozen=True)
class History:
    """The rows of one sweep; those of a trial are under its key, in the order of their steps or numbers."""

    sweep: SweepRecord
    trials: tuple[TrialRecord, ...]
    reports: Mapping[str, Sequence[ReportRecord]]
    attempts: Mapping[str, Sequence[AttemptRecord]]
    checkpoints: Mapping[str, Sequence[CheckpointRecord]]
    evaluations: Mapping[str, Sequence[EvaluationRecord]]

    @property
    def metric(self) -> str:
        """The metric that decides which trial is best, such as `val/accuracy`."""
        return str(self.sweep.facts["metric"])

    @property
    def maximize(self) -> bool:
        """Whether a larger value of the metric is better."""
        return bool(self.sweep.facts["direction"] == "maximize")

    @property
    def constraints(self) -> Constraints:
        """The bounds that a feasible trial keeps, by metric."""
        constraints: Constraints = self.sweep.document.get("constraints") or {}
        return constraints

    def search(self) -> tuple[TrialRecord, ...]:
        """Return the trials of the search, without confirmations."""
        return tuple(trial for trial in self.trials if trial.role == "search")

    def at_best(self, trial: TrialRecord) -> Mapping[str, float]:
        """Return the metrics that a trial reported at its best step; empty if it has none."""
        rows = (row for row in self.reports.get(trial.key, ()) if row.step == trial.best_step)
        return next((row.metrics for row in rows), {})

    def violation(self, trial: TrialRecord) -> float:
        """Return by how much a trial breaks the constraints of the sweep; 0 for a feasible trial."""
        return total_violation(self.constraints, self.at_best(trial)) if self.constraints else 0.0

    def violations(self) -> dict[str, float]:
        """Return the violation of each trial by its key."""
        return {trial.key: self.violation(trial) for trial in self.trials}


def read(ledger: Ledger, sweep_id: str) -> History:
    """Return the history of a sweep.

    Raises:
        BadInput: the sweep is not in the ledger.
    """
    sweep = ledger.sweep(sweep_id)
    if sweep is None:
        known = ", ".join(record.id for record in ledger.sweeps()) or "none"
        raise BadInput(ledger.where, "the ledger must know the sweep", sweep_id, f"It knows: {known}.")
    trials = tuple(sorted(ledger.trials(sweep_id), key=lambda trial: (trial.role != "search", trial.number)))
    return History(
        sweep=sweep,
        trials=trials,
        reports=by_trial(sorted(ledger.reports(sweep_id), key=lambda row: row.step)),
        attempts={trial.key: tuple(ledger.trial_attempts(trial.key)) for trial in trials},
        checkpoints=by_trial(ledger.checkpoints(sweep_id)),
        evaluations=by_trial(ledger.evaluations(sweep_id)),
    )
