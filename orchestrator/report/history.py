"""All that the ledger knows of one sweep, read once; everything else in this package is a function of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import (
    AttemptRecord,
    CheckpointRecord,
    EvaluationRecord,
    ReportRecord,
    SweepRecord,
    TrialRecord,
)

_Owned = TypeVar("_Owned", AttemptRecord, CheckpointRecord, EvaluationRecord, ReportRecord)


@dataclass(frozen=True)
class History:
    """One sweep's rows; those of a trial stand under its key, in the order of their steps or numbers."""

    sweep: SweepRecord
    trials: tuple[TrialRecord, ...]
    reports: Mapping[str, Sequence[ReportRecord]]
    attempts: Mapping[str, Sequence[AttemptRecord]]
    checkpoints: Mapping[str, Sequence[CheckpointRecord]]
    readings: Mapping[str, Sequence[EvaluationRecord]]

    @property
    def metric(self) -> str:
        """Return the metric that decides which trial is best, such as `val/accuracy`."""
        return str(self.sweep.facts["metric"])

    @property
    def maximize(self) -> bool:
        """Tell whether more of the metric is better."""
        return bool(self.sweep.facts["direction"] == "maximize")

    def search(self) -> tuple[TrialRecord, ...]:
        """Return the trials of the search, confirmations left out."""
        return tuple(trial for trial in self.trials if trial.role == "search")


def read(ledger: Ledger, sweep_id: str) -> History:
    """Return the history of a sweep.

    Raises:
        BadInput: if the ledger knows no such sweep.
    """
    sweep = ledger.sweep(sweep_id)
    if sweep is None:
        known = ", ".join(record.id for record in ledger.sweeps()) or "none"
        raise BadInput(ledger.where, "the ledger must know the sweep", sweep_id, f"It knows: {known}.")
    trials = tuple(sorted(ledger.trials(sweep_id), key=lambda trial: (trial.role != "search", trial.number)))
    return History(
        sweep=sweep,
        trials=trials,
        reports=_by_trial(sorted(ledger.reports(sweep_id), key=lambda row: row.step)),
        attempts={trial.key: tuple(ledger.attempts(trial.key)) for trial in trials},
        checkpoints=_by_trial(ledger.checkpoints(sweep_id)),
        readings=_by_trial(ledger.readings(sweep_id)),
    )


def _by_trial(rows: Sequence[_Owned]) -> dict[str, list[_Owned]]:
    found: defaultdict[str, list[_Owned]] = defaultdict(list)
    for row in rows:
        found[row.trial_key].append(row)
    return dict(found)
