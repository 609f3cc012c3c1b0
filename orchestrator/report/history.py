"""The history of one sweep: all its rows in the ledger, and its test results by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import holder
from orchestrator.ledger.sweeps.pareto import ParetoFront, front
from orchestrator.ledger.sweeps.records import (
    FINISHED_TRIAL,
    AttemptRecord,
    CheckpointRecord,
    EvaluationRecord,
    ReportRecord,
    SweepRecord,
    TrialRecord,
    by_trial,
)
from orchestrator.ledger.sweeps.selection import (
    Constraints,
    best_trial,
    confirmations_of,
    preference_of,
    racing_of,
    total_violation,
)
from orchestrator.ledger.sweeps.standing import ValueSoFar, values_so_far


@dataclass(frozen=True)
class History:
    """All rows of one sweep. Mappings hold the rows of each trial by its key, ordered by step or number.

    `read_at` is the time of reading if a driver had the sweep then, and else None.
    """

    sweep: SweepRecord
    trials: tuple[TrialRecord, ...]
    reports: Mapping[str, Sequence[ReportRecord]]
    attempts: Mapping[str, Sequence[AttemptRecord]]
    checkpoints: Mapping[str, Sequence[CheckpointRecord]]
    evaluations: Mapping[str, Sequence[EvaluationRecord]]
    read_at: float | None = None

    @property
    def metric(self) -> str:
        """Metric that decides which trial is best, such as `val/accuracy`."""
        return str(self.sweep.facts["metric"])

    @property
    def maximize(self) -> bool:
        """Whether a larger value of the metric is better."""
        return bool(self.sweep.facts["direction"] == "maximize")

    @property
    def constraints(self) -> Constraints:
        """Bounds that a feasible trial satisfies, by metric."""
        constraints: Constraints = self.sweep.document.get("constraints") or {}
        return constraints

    @property
    def has_best(self) -> bool:
        """Whether one trial can be the best: with several objectives, only by a preference."""
        return preference_of(self.sweep) is not None

    def front(self) -> ParetoFront:
        """Return the Pareto front of the search."""
        return front(self.sweep, self.trials, {trial.key: self.at_best(trial) for trial in self.trials})

    @property
    def racing(self) -> int:
        """Number of candidates of the race; 0 without one."""
        return racing_of(self.sweep.document)

    def search(self) -> tuple[TrialRecord, ...]:
        """Return the trials of the search, without confirmations."""
        return tuple(trial for trial in self.trials if trial.role == "search")

    def at_best(self, trial: TrialRecord) -> Mapping[str, float]:
        """Return the metrics of a trial at its best step; empty before its first report."""
        rows = (row for row in self.reports.get(trial.key, ()) if row.step == trial.best_step)
        return next((row.metrics for row in rows), {})

    def values_so_far(self) -> dict[str, ValueSoFar]:
        """Return the value so far of each search trial that has one, by its key."""
        saved = {
            trial.key: row
            for trial in self.trials
            for row in sorted(self.checkpoints.get(trial.key, ()), key=lambda row: row.step)
            if row.kind == "best"
        }
        return values_so_far(
            self.sweep,
            self.trials,
            {trial.key: self.at_best(trial) for trial in self.trials} if self.constraints else {},
            saved,
            lambda key, most: [row.metrics[self.metric] for row in self.reports[key][-most:]],
        )

    def violation(self, trial: TrialRecord) -> float:
        """Return the violation of the constraints by a trial; 0 for a feasible trial."""
        return total_violation(self.constraints, self.at_best(trial)) if self.constraints else 0.0

    def violations(self) -> dict[str, float]:
        """Return the violation of each trial by its key."""
        return {trial.key: self.violation(trial) for trial in self.trials}


def read(ledger: Ledger, sweep_id: str) -> History:
    """Return the history of a sweep.

    Raises:
        BadInput: The sweep is not in the ledger.
    """
    sweep = ledger.sweep(sweep_id)
    if sweep is None:
        known = ", ".join(record.id for record in ledger.sweeps()) or "none"
        raise BadInput(sweep_id, f"is not a sweep of {ledger.where}", "", f"Its sweeps: {known}.")
    trials = tuple(sorted(ledger.trials(sweep_id), key=lambda trial: (trial.role != "search", trial.number)))
    return History(
        sweep=sweep,
        trials=trials,
        reports=by_trial(sorted(ledger.reports(sweep_id), key=lambda row: row.step)),
        attempts=by_trial(ledger.attempts(sweep_id)),
        checkpoints=by_trial(ledger.checkpoints(sweep_id)),
        evaluations=by_trial(ledger.evaluations(sweep_id)),
        read_at=ledger.now() if holder(ledger, sweep_id) is not None else None,
    )


@dataclass(frozen=True)
class SeedResult:
    """The test result of one training.

    Attributes:
        trial: Key of the trial.
        seed: Seed of the trial.
        value: Test metric, finite.
        scores: Scores of the test examples, packed by `pack_scores`; None if they are not
            recorded or do not belong to the metric.
    """

    trial: str
    seed: int
    value: float
    scores: str | None


@dataclass(frozen=True)
class SeedResults:
    """The test results that represent a sweep: those of the confirmations of its best trial.

    The best trial itself does not count beside its confirmations, because its seed was selected together with
    its hyperparameters. It does count if the search has a single trial, so that nothing was selected.

    Attributes:
        results: One result per seed; without confirmations, the result of the best trial alone.
        fresh: Whether the seeds were drawn after the hyperparameters were chosen.
        missing: Number of finished confirmations without a result, because they failed or diverged.
        pending: Number of unfinished confirmations.
    """

    results: tuple[SeedResult, ...] = ()
    fresh: bool = False
    missing: int = 0
    pending: int = 0


SCORED = ("test/accuracy", "test/mse", "test/bits")
"""Metrics for which the score of every test example is recorded."""


def seed_results(history: History, metric: str) -> SeedResults:
    """Return the results of a sweep for a test metric, such as `test/accuracy`."""
    violations = history.violations()
    best = best_trial(history.trials, maximize=history.maximize, violations=violations, racing=history.racing)
    if best is None:
        return SeedResults()
    known = confirmations_of(history.trials, best)
    confirmations = [trial for trial in known if trial.state in FINISHED_TRIAL]
    pending = len(known) - len(confirmations)
    alone = [best] if history.sweep.document["budget"]["trials"] == 1 else []
    fresh = [result_on_test(history, trial, metric) for trial in (*alone, *confirmations)]
    results = tuple(result for result in fresh if result is not None)
    if results:
        return SeedResults(results, True, len(fresh) - len(results), pending)
    usable = best_trial(
        history.trials,
        maximize=history.maximize,
        violations=violations,
        checkpoints=history.checkpoints,
        racing=history.racing,
    )
    of_best = None if usable is None else result_on_test(history, usable, metric)
    return SeedResults(() if of_best is None else (of_best,), False, len(fresh), pending)


def evaluation_on_test(history: History, trial: TrialRecord) -> EvaluationRecord | None:
    """Return the latest evaluation of a trial on the test split, or None."""
    rows = [row for row in history.evaluations.get(trial.key, ()) if row.split == "test"]
    return rows[-1] if rows else None


def result_on_test(history: History, trial: TrialRecord, metric: str) -> SeedResult | None:
    """Return the value and the scores of a trial on the test split; None without a finite value."""
    evaluation = evaluation_on_test(history, trial)
    value = None if evaluation is None else evaluation.metrics.get(metric)
    if evaluation is None or value is None or not math.isfinite(value):
        return None
    return SeedResult(trial.key, trial.seed, value, evaluation.scores if metric in SCORED else None)
