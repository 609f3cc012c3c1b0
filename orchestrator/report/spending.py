"""Where the time went: what the attempts of a sweep spent on training, compiling, evaluating and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from orchestrator.ledger.records import AttemptRecord, ReportRecord
from orchestrator.report.history import History


@dataclass(frozen=True)
class Spending:
    """Seconds of attempts, added up over all that ran side by side.

    Attributes:
        train: in training steps.
        compile: in compiling programs.
        evaluate: on the validation split.
        other: starting, saving checkpoints, waiting to be served.
        lost: after the last report of an attempt that failed or was lost: done again, or done for nothing.
    """

    train: float = 0.0
    compile: float = 0.0
    evaluate: float = 0.0
    other: float = 0.0
    lost: float = 0.0

    @property
    def total(self) -> float:
        """Return all seconds."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, float]:
        """Return the seconds by what they were spent on."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __add__(self, other: Spending) -> Spending:
        return Spending(**{name: value + getattr(other, name) for name, value in self.parts().items()})


def spending(history: History, trial_key: str | None = None) -> Spending:
    """Return what a trial has spent, or all trials of the sweep."""
    keys = [trial.key for trial in history.trials] if trial_key is None else [trial_key]
    total = Spending()
    for key in keys:
        for attempt in history.attempts.get(key, ()):
            mine = [row for row in history.reports.get(key, ()) if row.attempt_id == attempt.id]
            total += _of_attempt(attempt, mine)
    return total


def _of_attempt(attempt: AttemptRecord, reports: Sequence[ReportRecord]) -> Spending:
    last = max((row.at for row in reports), default=attempt.started_at)
    end = last if attempt.ended_at is None else max(last, attempt.ended_at)
    lost = end - last if attempt.state in ("LOST", "FAILED") else 0.0
    known = {
        name: sum(row.metrics.get(f"seconds/{name}", 0.0) for row in reports)
        for name in ("train", "compile", "evaluate")
    }
    other = end - attempt.started_at - lost - sum(known.values())
    return Spending(**known, other=max(0.0, other), lost=lost)
