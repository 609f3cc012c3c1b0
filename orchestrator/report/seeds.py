"""The test results of a sweep by seed: those that a comparison with another sweep is based on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from orchestrator.ledger.records import FINISHED_TRIAL, EvaluationRecord, TrialRecord
from orchestrator.ledger.selection import best_trial, confirmations_of
from orchestrator.report.history import History


@dataclass(frozen=True)
class SeedResult:
    """The test result of one training.

    Attributes:
        trial: key of the trial.
        seed: of the trial.
        value: the test metric, finite.
        scores: of every test example, as `orchestrator.ledger.scores` packs them; None if not recorded, or if
            the metric is not the task's on the test split itself.
    """

    trial: str
    seed: int
    value: float
    scores: str | None


@dataclass(frozen=True)
class SeedResults:
    """The test results that stand for a sweep.

    They are those of the confirmations of its best trial. The best trial itself is left out beside them: its
    seed was chosen together with its hyperparameters, as one that did well. It counts if the search has one
    trial, because nothing was chosen then.

    Attributes:
        results: one for each seed; without confirmations, that of the best trial alone.
        fresh: whether the seeds were drawn after the choice of the hyperparameters.
        missing: number of finished confirmations without a result, because they failed or diverged.
        pending: number of confirmations that have not ended.
    """

    results: tuple[SeedResult, ...] = ()
    fresh: bool = False
    missing: int = 0
    pending: int = 0


SCORED = ("test/accuracy", "test/mse", "test/bits")
"""The metrics of which the score of every test example is recorded."""


def seed_results(history: History, metric: str) -> SeedResults:
    """Return the results of a sweep for a test metric, such as `test/accuracy`."""
    violations = history.violations()
    best = best_trial(history.trials, maximize=history.maximize, violations=violations)
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
        history.trials, maximize=history.maximize, violations=violations, checkpoints=history.checkpoints
    )
    of_best = None if usable is None else result_on_test(history, usable, metric)
    return SeedResults(() if of_best is None else (of_best,), False, len(fresh), pending)


def evaluation_on_test(history: History, trial: TrialRecord) -> EvaluationRecord | None:
    """Return the last evaluation of a trial on the test split, or None."""
    rows = [row for row in history.evaluations.get(trial.key, ()) if row.split == "test"]
    return rows[-1] if rows else None


def result_on_test(history: History, trial: TrialRecord, metric: str) -> SeedResult | None:
    """Return the value and the scores of a trial on the test split; None without a finite value."""
    evaluation = evaluation_on_test(history, trial)
    value = None if evaluation is None else evaluation.metrics.get(metric)
    if evaluation is None or value is None or not math.isfinite(value):
        return None
    return SeedResult(trial.key, trial.seed, value, evaluation.scores if metric in SCORED else None)
